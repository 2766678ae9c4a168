use async_executor::LocalExecutor;
use futures_lite::future::yield_now;

use super::*;
use crate::runtime::run::block_on;

/// One user, and all answers of hers but this many are taken.
fn with_answers(left: usize) -> (Rc<Guests>, User, Vec<Permit>) {
    let guests = Rc::new(Guests::new());
    let user = guests.users.borrow_mut().join(0, now());
    let mut all: Vec<_> = std::iter::from_fn(|| guests.try_take(user, Place::Answer)).collect();
    all.truncate(all.len() - left);
    (guests, user, all)
}

#[test]
fn a_permit_goes_to_those_who_wait_in_their_order_and_to_nobody_else() {
    let (guests, user, mut held) = with_answers(0);
    let line_up = || guests.line_up(user, Place::Answer);
    let (first, second) = (line_up(), line_up());
    drop(held.pop());
    assert!(guests.try_take(user, Place::Answer).is_none(), "it is the first's already");
    assert!(second.take().is_none());
    let permit = first.take();
    assert!(permit.is_some() && first.take().is_none());
    drop(permit);
    drop(second.take().expect("the second's permit"));
    assert!(guests.try_take(user, Place::Answer).is_some());
}

#[test]
fn who_leaves_the_line_hands_its_permit_on() {
    let (guests, user, mut held) = with_answers(0);
    let line_up = || guests.line_up(user, Place::Answer);
    let (first, second, third) = (line_up(), line_up(), line_up());
    // One waiter leaves before it has a permit, one after.
    drop(first);
    drop(held.pop());
    drop(second);
    drop(third.take().expect("the third's permit"));
    assert!(guests.try_take(user, Place::Answer).is_some());
}

#[test]
fn another_user_does_not_wait_for_those_who_do() {
    let (guests, user, mut held) = with_answers(0);
    let first = guests.line_up(user, Place::Answer);
    let other = guests.users.borrow_mut().join(1000, now());
    let others = [(); 2].map(|()| guests.try_take(other, Place::Answer).expect("room for others"));
    drop(held.pop());
    assert!(first.take().is_none(), "as many are held as are free");
    drop(others);
    assert!(first.take().is_some());
}

/// A client that obtains this and then does that for ever.
fn client(guests: &Rc<Guests>, executor: &LocalExecutor<'static>, place: Place, then: Activity) {
    guests.admit(0, |entry| {
        executor.spawn(async move {
            entry.obtain(place).await;
            entry.note(then, now());
            futures_lite::future::pending::<()>().await;
            drop(entry);
        })
    });
}

/// Lets all tasks run that can.
async fn all_run() {
    for _ in 0..10 {
        yield_now().await;
    }
}

#[test]
fn who_waits_for_a_permit_gets_it_from_somebody_who_rests_with_it() {
    let (guests, user, held) = with_answers(0);
    let most = held.len();
    drop(held);
    let executor = LocalExecutor::new();
    block_on(&executor, async {
        for _ in 0..most {
            client(&guests, &executor, Place::Answer, Activity::Writing);
        }
        let begun = now();
        all_run().await;
        assert!(guests.try_take(user, Place::Answer).is_none());
        drop(guests.permit(user, Place::Answer).await.expect("a permit"));
        assert!(now() - begun >= GRACE, "not before its grace is over");
        assert_eq!(guests.clients.borrow().len(), most - 1);
        for _ in 0..17 {
            client(&guests, &executor, Place::Large, Activity::Body);
        }
        all_run().await;
        assert_eq!(guests.clients.borrow().len(), most - 1 + 16, "the first gave way at once");
    });
}

#[test]
fn whoever_is_closed_gives_back_what_it_holds() {
    let (guests, user, held) = with_answers(1);
    let executor = LocalExecutor::new();
    block_on(&executor, async {
        client(&guests, &executor, Place::Answer, Activity::Writing);
        yield_now().await;
        assert!(guests.try_take(user, Place::Answer).is_none());
        assert!(guests.close_one());
        assert!(!guests.close_one(), "nobody is left");
        yield_now().await;
        assert!(guests.try_take(user, Place::Answer).is_some());
    });
    drop(held);
}
