//! The heap: musl's allocator, with separate mappings for long allocations and growing tables, and
//! a cache of some freed blocks.
//!
//! musl allocates in groups of up to 128 KiB and returns a group to the kernel only when nothing in
//! it is in use. After a burst of calls, about a hundred small objects (tickets, grown tables) held
//! 500 KiB in as many groups. An allocation that grows beyond a page is nearly always such a table,
//! and long allocations make groups large. Both are mapped one by one, and unmapped when freed. A
//! mapping costs two system calls, so musl still serves buffers that are allocated at their final
//! size.
//!
//! musl maps and unmaps a page for nearly each block of a size that has few: states and buffers of a
//! connection, TLS records, and small objects when their group happens to be full. So one freed
//! block of each of musl's size classes and three TLS records are cached until [`rest`]. A cached
//! block also keeps its group, which has room for the next blocks of that size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::{Range, RangeInclusive};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Minimum size of an allocation that gets its own mapping from the beginning, in bytes.
const LONG: usize = 16 * 1024;
/// Sizes, in bytes, that a [`BLOCK`] serves: the content of a TLS record (16 KiB), a record with
/// its header, and twice that.
const RECORDS: RangeInclusive<usize> = LONG..=BLOCK;
/// Size of a cached TLS record, in bytes. Shorter data does not touch its last pages.
const BLOCK: usize = RECORD as usize;
/// Sizes of the cached blocks, in bytes: musl's size classes, four per doubling (its
/// `size_classes`, without the header), and three TLS records: a transfer reads into one, holds
/// data in another, and rustls encrypts in the third.
const SIZES: [u16; 31] = [
    12, 28, 44, 60, 76, 92, 108, 124, 140, 156, 188, 236, 284, 316, 396, 492, 572, 668, 796, 1004,
    1148, 1340, 1628, 2028, 2332, 2716, 3260, 4076, RECORD, RECORD, RECORD,
];
const RECORD: u16 = 36 * 1024;
/// Index of the first TLS record.
const FIRST_RECORD: usize = 28;
const ALL: Range<usize> = 0..SIZES.len();
/// Size at which a growing table gets its own mapping, in bytes.
const GROWN: usize = 4 * 1024;
/// Unit of freed stack, in bytes; with larger pages, the kernel may refuse.
const PAGE: usize = 4096;
/// Maximum size of the freed stack, in bytes; less than the kernel's gap below a stack (1 MiB).
const STACK: usize = 256 * 1024;
/// Size from which musl maps an allocation, in bytes (its `MMAP_THRESHOLD`). Pages beyond the size
/// really needed are never touched, so they use no memory.
const MAPPED: usize = 128 * 1024;

/// The global allocator. It wipes freed memory, so that no keys or secrets remain in it; the kernel
/// wipes mappings. A block that realloc(3) moves is not wiped.
struct Heap {
    /// Freed and wiped blocks, by [`SIZES`].
    spare: [AtomicPtr<u8>; SIZES.len()],
}

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Frees the cached blocks, and the stack's pages that earlier calls (a handshake) have used.
#[inline(never)] // close to the top of the stack
pub(crate) fn rest() {
    HEAP.rest();
    let here = 0_u8;
    // The 1024 bytes are for madvise(2)'s own frame. Below the stack's mapping there is a gap.
    let end = ((&raw const here).addr() - 1024) & !(PAGE - 1);
    let start = std::ptr::without_provenance_mut(end - STACK);
    // SAFETY: nothing below the stack pointer is in use.
    unsafe { libc::madvise(start, STACK, libc::MADV_DONTNEED) };
}

/// Returns zeros in a block that may be a cached one, for a buffer that is used whole and soon
/// freed. `vec![0; length]` takes new pages from the kernel: for 31 KiB, two system calls and eight
/// page faults.
pub(crate) fn zeros(length: usize) -> Vec<u8> {
    let mut zeros = Vec::<u8>::with_capacity(length);
    // SAFETY: it has room for `length` bytes, and all are written.
    unsafe {
        zeros.as_mut_ptr().write_bytes(0, length);
        zeros.set_len(length);
    }
    zeros
}

/// Returns the layout to request from musl: long ones are enlarged to [`MAPPED`].
fn long(asked: Layout) -> Layout {
    if !(LONG..MAPPED).contains(&asked.size()) {
        return asked;
    }
    Layout::from_size_align(MAPPED, asked.align()).unwrap_or(asked)
}

/// Returns the range of [`SIZES`] whose blocks fit; empty if there is none, for example because the
/// alignment exceeds malloc(3)'s.
fn slots(asked: Layout) -> Range<usize> {
    let size = asked.size();
    if asked.align() > 16 {
        return 0..0;
    }
    if RECORDS.contains(&size) {
        return FIRST_RECORD..SIZES.len();
    }
    let class = SIZES[..FIRST_RECORD].iter().position(|class| size <= usize::from(*class));
    class.map_or(0..0, |class| class..class + 1)
}

/// Returns the size to request from musl for a reallocation from `old` to `size` bytes; `usable` is
/// the size of musl's block.
fn resized(size: usize, old: usize, usable: usize) -> usize {
    // A vector that grows by push doubles; a buffer is resized to a given length.
    let is_table = old < GROWN && size == 2 * old;
    // A mapped allocation stays mapped: it can grow in place.
    let mapped = size > BLOCK || size >= GROWN && (is_table || usable >= MAPPED);
    if mapped { size.max(MAPPED) } else { size }
}

// SAFETY: every call goes to System with at least the caller's size and the same alignment, or
// takes a cached block, which has no owner. System's `dealloc` and `realloc` use address and
// alignment, not the given size. A block whose layout has slots has the size of its first slot:
// `alloc` requests that, and `realloc` moves a block whose slots change.
unsafe impl GlobalAlloc for Heap {
    #[inline(never)] // inlined, it adds kilobytes
    unsafe fn alloc(&self, asked: Layout) -> *mut u8 {
        let slots = slots(asked);
        if let Some(block) = self.take(&slots) {
            return block;
        }
        // SAFETY: the caller guarantees that the size is not zero.
        unsafe { System.alloc(whole(asked, &slots)) }
    }

    unsafe fn alloc_zeroed(&self, asked: Layout) -> *mut u8 {
        let slots = slots(asked);
        if slots.start == FIRST_RECORD {
            // Map it, so that unused pages take no memory: often only a part of the buffer is used
            // for long. musl would write zeros to a shorter one. SAFETY: the size is not zero.
            return unsafe { System.alloc_zeroed(Layout::new::<[u8; MAPPED]>()) };
        }
        if let Some(block) = self.take(&slots) {
            // SAFETY: the block has room for `asked`.
            unsafe { block.write_bytes(0, asked.size()) };
            return block;
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(whole(asked, &slots)) }
    }

    #[inline(never)] // as above
    unsafe fn dealloc(&self, at: *mut u8, asked: Layout) {
        let (size, slots) = (asked.size(), slots(asked));
        // SAFETY: the caller guarantees that `at` was allocated here with that size and gives it
        // up.
        unsafe {
            // The kernel wipes mappings.
            let is_mapped = slots.is_empty()
                && size >= GROWN
                && (size >= LONG || libc::malloc_usable_size(at.cast()) >= LONG);
            if !is_mapped {
                libc::explicit_bzero(at.cast(), size);
            }
            if !self.keep(at, &slots) {
                System.dealloc(at, asked);
            }
        }
    }

    #[inline(never)] // as above
    unsafe fn realloc(&self, at: *mut u8, asked: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, asked.align()) else { return null_mut() };
        let (from, to) = (slots(asked), slots(new));
        if from != to {
            // SAFETY: the caller's guarantees for `at`, `asked` and `size`.
            return unsafe { self.moved(at, asked, new) };
        }
        if !to.is_empty() {
            // The block has room. Wipe the part that is cut off, which freeing the block would not
            // wipe.
            let cut = asked.size().saturating_sub(size);
            // SAFETY: `at` has `asked` bytes.
            unsafe { libc::explicit_bzero(at.add(size.min(asked.size())).cast(), cut) };
            return at;
        }
        // SAFETY: the caller guarantees that `at` was allocated here, so by malloc(3).
        let usable = unsafe { libc::malloc_usable_size(at.cast()) };
        // SAFETY: as above; the new size is not zero, and at most the caller's or MAPPED.
        unsafe { System.realloc(at, asked, resized(size, asked.size(), usable)) }
    }
}

/// Returns the layout to request from musl for a block of these slots.
fn whole(asked: Layout, slots: &Range<usize>) -> Layout {
    let size = if slots.is_empty() { None } else { SIZES.get(slots.start) };
    let whole =
        size.and_then(|size| Layout::from_size_align(usize::from(*size), asked.align()).ok());
    whole.unwrap_or_else(|| long(asked))
}

impl Heap {
    const fn new() -> Self {
        Self { spare: [const { AtomicPtr::new(null_mut()) }; SIZES.len()] }
    }

    /// Takes a cached block from one of these slots.
    fn take(&self, slots: &Range<usize>) -> Option<*mut u8> {
        let mut taken = self
            .spare
            .get(slots.clone())?
            .iter()
            .map(|spare| spare.swap(null_mut(), Ordering::Acquire));
        taken.find(|block| !block.is_null())
    }

    /// Caches a block at one of these slots; returns false if all are taken.
    fn keep(&self, block: *mut u8, slots: &Range<usize>) -> bool {
        self.spare.get(slots.clone()).into_iter().flatten().any(|spare| {
            let was_empty =
                spare.compare_exchange(null_mut(), block, Ordering::Release, Ordering::Relaxed);
            was_empty.is_ok()
        })
    }

    fn rest(&self) {
        while let Some(block) = self.take(&ALL) {
            // SAFETY: System allocated it, and it has no other owner; System needs no size.
            unsafe { System.dealloc(block, Layout::new::<[u8; BLOCK]>()) }
        }
    }

    /// Moves a block whose slots change.
    ///
    /// # Safety
    /// As for `realloc`.
    unsafe fn moved(&self, at: *mut u8, old: Layout, new: Layout) -> *mut u8 {
        let (had, has) = (old.size(), new.size());
        let size = if slots(new).is_empty() { resized(has, had, had) } else { has };
        let Ok(new) = Layout::from_size_align(size, new.align()) else { return null_mut() };
        // SAFETY: `at` has `had` bytes; the new block, unless null, has `has` and does not overlap.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(at, had.min(has));
                self.dealloc(at, old);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_allocations_that_grow_beyond_a_page() {
        for (size, old, usable, expected) in [
            (64, 32, 48, 64),
            (4096, 2048, 2048, MAPPED),
            (5120, 2560, 2800, MAPPED),
            (8192, 4096, MAPPED, MAPPED),
            (MAPPED + 1, 8192, MAPPED, MAPPED + 1),
            (8192, 4096, 4096, 8192),
            (4096, 1024, 1200, 4096),
            (BLOCK + 1, BLOCK / 2, BLOCK, MAPPED),
            // This block is too short for a mapping.
            (2048, 8192, MAPPED, 2048),
        ] {
            assert_eq!(resized(size, old, usable), expected, "{old} to {size}");
        }
    }

    #[test]
    fn realloc_keeps_contents_at_every_size() {
        let mut grown: Vec<u32> = Vec::new();
        for number in 0..100_000 {
            grown.push(number);
        }
        grown.truncate(5000);
        grown.shrink_to_fit();
        grown.truncate(10);
        grown.shrink_to_fit();
        assert_eq!(grown, (0..10).collect::<Vec<_>>());
        for size in [1, LONG - 1, LONG, BLOCK, BLOCK + 1, MAPPED - 1, MAPPED, MAPPED + 1] {
            assert!(vec![0_u8; size].iter().all(|byte| *byte == 0), "{size}");
        }
    }

    #[test]
    fn rest_frees_the_unused_stack() {
        #[inline(never)]
        fn deep() -> usize {
            let used = [1_u8; STACK / 8];
            std::hint::black_box(&used).as_ptr().addr()
        }
        let is_resident = |address: usize| {
            let mut resident = [0];
            let page = std::ptr::without_provenance_mut(address & !(PAGE - 1));
            // SAFETY: mincore writes one byte per page, and this is one page.
            assert_eq!(unsafe { libc::mincore(page, PAGE, resident.as_mut_ptr()) }, 0);
            resident[0] & 1 == 1
        };
        let address = deep();
        assert!(is_resident(address));
        rest();
        assert!(!is_resident(address));
    }

    fn record(size: usize) -> Layout {
        Layout::from_size_align(size, 1).unwrap()
    }

    #[test]
    fn reuses_a_wiped_block_for_the_next_record() {
        let heap = Heap::new();
        // SAFETY: each block is used within its size and freed once, with its layout.
        unsafe {
            let first = heap.alloc(record(LONG));
            let longer = heap.realloc(first, record(LONG), BLOCK);
            assert_eq!(longer, first);
            longer.write_bytes(7, BLOCK);
            let shorter = heap.realloc(longer, record(BLOCK), LONG);
            assert_eq!(shorter, first);
            heap.dealloc(shorter, record(LONG));
            let kept = std::slice::from_raw_parts(first, BLOCK);
            assert!(kept.iter().all(|byte| *byte == 0));

            let zeroed = heap.alloc_zeroed(record(LONG));
            assert_ne!(zeroed, first, "its pages were used");
            let again = heap.alloc(record(LONG + 100));
            assert_eq!(again, first);
            heap.dealloc(zeroed, record(LONG));
            let _kept = heap.take(&ALL);
            again.write_bytes(9, LONG + 100);
            let moved = heap.realloc(again, record(LONG + 100), BLOCK + 1);
            assert!(std::slice::from_raw_parts(moved, LONG).iter().all(|byte| *byte == 9));
            // The freed block now serves a record.
            let small = heap.realloc(moved, record(BLOCK + 1), LONG);
            assert_eq!(small, first);
            assert!(std::slice::from_raw_parts(small, LONG).iter().all(|byte| *byte == 9));
            heap.dealloc(small, record(LONG));
        }
        heap.rest();
        assert!(heap.take(&ALL).is_none());
    }

    #[test]
    fn caches_one_block_of_each_size() {
        let heap = Heap::new();
        // SAFETY: as above.
        unsafe {
            let (first, second) = (heap.alloc(record(600)), heap.alloc(record(668)));
            first.write_bytes(7, 600);
            heap.dealloc(first, record(600));
            heap.dealloc(second, record(668));
            assert_ne!(heap.alloc(record(572)), first, "a different size");
            let zeroed = heap.alloc_zeroed(record(668));
            assert_eq!(zeroed, first);
            assert!(std::slice::from_raw_parts(zeroed, 668).iter().all(|byte| *byte == 0));

            zeroed.write_bytes(9, 668);
            let shorter = heap.realloc(zeroed, record(668), 580);
            assert_eq!(shorter, zeroed, "it has the same slot");
            assert!(std::slice::from_raw_parts(shorter.add(580), 88).iter().all(|byte| *byte == 0));
            let small = heap.realloc(shorter, record(580), 10);
            assert!(std::slice::from_raw_parts(small, 10).iter().all(|byte| *byte == 9));
            assert_eq!(heap.alloc(record(573)), first, "what was left is kept");
            heap.dealloc(small, record(10));
        }
        heap.rest();
    }

    #[test]
    fn maps_each_size_to_its_cache_slot() {
        for size in [4077, LONG - 1, BLOCK + 1] {
            assert!(slots(record(size)).is_empty(), "{size}");
        }
        assert!(slots(Layout::from_size_align(600, 64).unwrap()).is_empty());
        for (size, expected) in [(1, 0), (12, 0), (13, 1), (572, 16), (573, 17), (4076, 27)] {
            assert_eq!(slots(record(size)), expected..expected + 1, "{size}");
        }
        assert_eq!(slots(record(LONG)), FIRST_RECORD..SIZES.len());
        assert!(SIZES.is_sorted());
    }
}
