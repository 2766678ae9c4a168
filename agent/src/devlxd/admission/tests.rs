use smol::LocalExecutor;
use smol::future::pending;

use super::*;
use crate::runtime::block_on;

const OTHER: u32 = 4711;

/// A client that obtains this quota and then has this activity forever.
async fn client(
    guests: &Rc<Guests>,
    executor: &LocalExecutor<'static>,
    user: u32,
    quota: Quota,
    then: Activity,
) {
    let serve = |entry: Entry| -> BoxFuture<'static> {
        Box::pin(async move {
            entry.obtain(quota).await;
            entry.note(then, now());
            pending::<()>().await;
            drop(entry);
        })
    };
    guests.admit(user, serve, |serve| executor.spawn(serve)).await;
}

/// An entry that no task serves.
fn entry(guests: &Rc<Guests>, user: u32) -> Entry {
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let serve = move |entry| -> BoxFuture<'static> {
        keep.borrow_mut().replace(entry);
        Box::pin(async {})
    };
    block_on(&LocalExecutor::new(), guests.admit(user, serve, |_| unreachable!("it has ended")));
    let entry = kept.take().expect("an entry");
    // This one is never closed.
    entry.leave();
    entry
}

async fn all_run() {
    for _ in 0..10 {
        yield_now().await;
    }
}

fn count(guests: &Guests) -> usize {
    guests.clients.borrow().len()
}

#[test]
fn a_waiting_call_evicts_an_idle_client_after_its_grace() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    let most = guests.bounds.most(Quota::Call);
    block_on(&executor, async {
        for _ in 0..most {
            client(&guests, &executor, 0, Quota::Call, Activity::Writing).await;
        }
        all_run().await;
        let begun = now();
        let newcomer = entry(&guests, 0);
        assert!(!newcomer.try_obtain(Quota::Call));
        assert!(newcomer.obtain(Quota::Call).await);
        assert!(now() - begun >= GRACE, "not before its grace is over");
        assert_eq!(count(&guests), most - 1);
        // The evicted client has nothing left to return.
        all_run().await;
        assert!(!entry(&guests, 0).try_obtain(Quota::Call));
        drop(newcomer);
        assert!(entry(&guests, 0).try_obtain(Quota::Call));
    });
}

#[test]
fn serves_a_new_client_before_busy_ones() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    let order = Rc::new(RefCell::new(Vec::new()));
    block_on(&executor, async {
        for number in 0..3 {
            let order = order.clone();
            let serve = move |entry| -> BoxFuture<'static> {
                Box::pin(async move {
                    let _entry: Entry = entry;
                    for _ in 0..2 {
                        order.borrow_mut().push(number);
                        yield_now().await;
                    }
                })
            };
            guests.admit(0, serve, |serve| executor.spawn(serve)).await;
        }
        all_run().await;
    });
    assert_eq!(*order.borrow(), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_large_request_evicts_an_incomplete_one_at_once() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    let most = guests.bounds.most(Quota::LargeBody);
    block_on(&executor, async {
        for _ in 0..=most {
            client(&guests, &executor, 0, Quota::LargeBody, Activity::Body).await;
        }
        all_run().await;
        assert_eq!(count(&guests), most, "the first was closed");
    });
}

#[test]
fn a_slow_reader_falls_behind_only_with_a_long_answer() {
    for (quota, falls_behind) in [(Quota::LongReply, true), (Quota::Call, false)] {
        let (slow, start) = (entry(&Rc::new(Guests::new()), OTHER), now());
        assert!(slow.try_obtain(quota));
        // No piece takes [`READING`].
        let pieces = (0..10).map(|piece| start + piece * READING.mul_f32(0.9));
        pieces.for_each(|now| slow.note(Activity::Writing, now));
        assert_eq!(slow.client.connected.get().since < start + READING, falls_behind);
    }
}

#[test]
fn root_is_next_for_a_long_answer() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    let order = Rc::new(RefCell::new(Vec::new()));
    block_on(&executor, async {
        client(&guests, &executor, OTHER, Quota::LongReply, Activity::Writing).await;
        for user in [OTHER, OTHER, 0] {
            let (waits, order) = (entry(&guests, user), order.clone());
            let task = async move {
                waits.obtain(Quota::LongReply).await;
                order.borrow_mut().push(user);
            };
            executor.spawn(task).detach();
        }
        sleep(READING_FOR_USER + 2 * GRACE).await;
    });
    assert_eq!(*order.borrow(), [0, OTHER, OTHER]);
}

#[test]
fn root_evicts_others_but_not_vice_versa() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    let most = guests.bounds.most(Quota::LongPoll);
    block_on(&executor, async {
        for number in 0..most {
            let user = if number % 2 == 0 { 0 } else { OTHER };
            client(&guests, &executor, user, Quota::LongPoll, Activity::Served).await;
        }
        all_run().await;
        let (root, other) = (entry(&guests, 0), entry(&guests, OTHER));
        assert!(!root.obtain(Quota::LongPoll).await && !other.obtain(Quota::LongPoll).await);
        // Their peers no longer read.
        for client in &*guests.clients.borrow() {
            let connected = client.connected.get();
            client.connected.set(Connected { activity: Activity::Writing, ..connected });
        }
        sleep(GRACE).await;
        let others: Vec<_> = (0..most / 2).map(|_| entry(&guests, OTHER)).collect();
        for other in &others {
            assert!(other.obtain(Quota::LongPoll).await);
        }
        assert!(guests.clients.borrow().iter().all(|client| client.class() == Class::Root));
        assert_eq!(count(&guests), most / 2);
        assert!(!other.obtain(Quota::LongPoll).await, "half are reserved for them");
        drop(others);
        let all: Vec<_> = (0..most).map(|_| entry(&guests, 0)).collect();
        for root in &all {
            assert!(root.obtain(Quota::LongPoll).await);
        }
        assert_eq!(count(&guests), 0);
        assert!(!other.obtain(Quota::LongPoll).await, "root has all");
    });
}

#[test]
fn an_evicted_client_returns_its_quotas_and_wakes_waiters() {
    let (guests, executor) = (Rc::new(Guests::new()), LocalExecutor::new());
    block_on(&executor, async {
        let most = guests.bounds.most(Quota::Call);
        let all: Vec<_> = (1..most).map(|_| entry(&guests, 0)).collect();
        assert!(all.iter().all(|entry| entry.try_obtain(Quota::Call)));
        client(&guests, &executor, 0, Quota::Call, Activity::Silent).await;
        all_run().await;
        // Not an eviction candidate: it waits.
        let waiter = entry(&guests, 0);
        let waiting = executor.spawn(async move { waiter.obtain(Quota::Call).await });
        yield_now().await;
        assert!(guests.close_one());
        assert!(!guests.close_one(), "no client is left");
        assert!(waiting.await);
        assert!(all[0].obtain(Quota::Queued).await);
    });
}
