//! The heap: musl's, except that long allocations and growing tables get their own mappings.
//!
//! musl allocates in groups of up to 128 KiB, and returns a group to the kernel when nothing in it is in
//! use. After a burst of calls about a hundred small objects remain (tickets, tables that have grown), each
//! in another group: 500 KiB were held for them. An allocation that grows beyond a page is nearly always
//! such a table, and long allocations are what makes groups large. Both are mapped one by one and returned
//! when freed. A mapping costs two system calls, so buffers allocated in one piece for each call are left
//! to musl.

use std::alloc::{GlobalAlloc, Layout, System};

/// Shortest allocation in one piece that gets its own mapping, bytes.
const LONG: usize = 16 * 1024;
/// Size at which a growing table gets its own mapping, bytes.
const GROWN: usize = 4 * 1024;
/// Size from which musl maps an allocation, bytes (its `MMAP_THRESHOLD`). Pages beyond the size really
/// needed are never touched, so they take no memory.
const MAPPED: usize = 128 * 1024;

/// The global allocator. What is freed is wiped first: keys and secrets of guest and host do not stay in memory that
/// is used again. The kernel does the same for mappings. A block that realloc(3) moves is not wiped.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// The layout to request of musl: enlarged to [`MAPPED`] if it is long.
fn long(asked: Layout) -> Layout {
    if !(LONG..MAPPED).contains(&asked.size()) {
        return asked;
    }
    Layout::from_size_align(MAPPED, asked.align()).unwrap_or(asked)
}

/// Size to request of musl for a reallocation from `old` to `size` bytes; `usable` is the size of musl's
/// block.
fn resized(size: usize, old: usize, usable: usize) -> usize {
    // A vector that grows by push doubles; a buffer is resized to a given length.
    let is_table = old < GROWN && size == 2 * old;
    // A mapped allocation stays mapped: it can grow in place.
    let mapped = size >= LONG || size >= GROWN && (is_table || usable >= MAPPED);
    if mapped { size.max(MAPPED) } else { size }
}

// SAFETY: every call goes to System with at least the caller's size and the same alignment; System's
// `dealloc` and `realloc` use the address and the alignment, not the given size.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, asked: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is not zero.
        unsafe { System.alloc(long(asked)) }
    }

    unsafe fn alloc_zeroed(&self, asked: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(long(asked)) }
    }

    unsafe fn dealloc(&self, at: *mut u8, asked: Layout) {
        // SAFETY: the caller guarantees that `at` was allocated here, so it is malloc's, and gives it up.
        unsafe {
            // Not the size asked for, which few callers would have to know.
            let usable = libc::malloc_usable_size(at.cast());
            if usable < LONG {
                libc::explicit_bzero(at.cast(), usable);
            }
            System.dealloc(at, asked);
        }
    }

    unsafe fn realloc(&self, at: *mut u8, asked: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `at` was allocated here, so it is malloc's.
        let usable = unsafe { libc::malloc_usable_size(at.cast()) };
        // SAFETY: the same; the new size is not zero, and not more than the caller's or MAPPED.
        unsafe { System.realloc(at, asked, resized(size, asked.size(), usable)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_a_page_is_mapped_and_stays_so() {
        for (size, old, usable, expected) in [
            (64, 32, 48, 64),
            (4096, 2048, 2048, MAPPED),
            (5120, 2560, 2800, MAPPED),
            (8192, 4096, MAPPED, MAPPED),
            (MAPPED + 1, 8192, MAPPED, MAPPED + 1),
            // Buffers.
            (8192, 4096, 4096, 8192),
            (4096, 1024, 1200, 4096),
            (16_384, 8192, 8192, MAPPED),
            // Shrinks below the size worth a mapping.
            (2048, 8192, MAPPED, 2048),
        ] {
            assert_eq!(resized(size, old, usable), expected, "{old} to {size}");
        }
    }

    #[test]
    fn contents_stay_the_same_through_every_size() {
        let mut grown: Vec<u32> = Vec::new();
        for number in 0..100_000 {
            grown.push(number);
        }
        grown.truncate(5000);
        grown.shrink_to_fit();
        grown.truncate(10);
        grown.shrink_to_fit();
        assert_eq!(grown, (0..10).collect::<Vec<_>>());
        for size in [1, LONG - 1, LONG, MAPPED - 1, MAPPED, MAPPED + 1] {
            assert!(vec![0_u8; size].iter().all(|byte| *byte == 0), "{size}");
        }
    }
}
