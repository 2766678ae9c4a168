//! Open files and directories by handle. A handle consists of a slot's index and generation, so
//! that a handle used after its CLOSE is invalid and never names another file. Each slot takes 16
//! bytes, including its place in the list of free ones, and every call takes constant time.

use alloc::vec::Vec;

use super::request::Handle;

#[derive(Debug)]
pub struct Handles<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    most: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// Number of handles given out for this slot.
    generation: u32,
    open: Option<T>,
}

impl<T> Handles<T> {
    pub fn new(most: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), most }
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns whether one more handle fits. Check this before you open, and so perhaps create, a
    /// file.
    pub fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.most
    }

    /// Adds an open file; `None` if the table is full.
    pub fn add(&mut self, opened: T) -> Option<Handle> {
        if !self.has_room() {
            return None;
        }
        let index = self.free.pop().or_else(|| {
            let index = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(Slot { generation: 0, open: None });
            Some(index)
        })?;
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.open = Some(opened);
        Some(Handle(u64::from(slot.generation) << u32::BITS | u64::from(index)))
    }

    pub fn get(&self, handle: Handle) -> Option<&T> {
        let (generation, index) = parts(handle)?;
        let slot = self.slots.get(index).filter(|slot| slot.generation == generation)?;
        slot.open.as_ref()
    }

    /// Removes and returns the open file; the handle becomes invalid.
    pub fn take(&mut self, handle: Handle) -> Option<T> {
        let (generation, index) = parts(handle)?;
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation)?;
        let opened = slot.open.take()?;
        self.free.extend(u32::try_from(index));
        Some(opened)
    }
}

/// Returns the generation and the index.
fn parts(handle: Handle) -> Option<(u32, usize)> {
    let generation = u32::try_from(handle.0 >> u32::BITS).ok()?;
    let index = usize::try_from(handle.0 & u64::from(u32::MAX)).ok()?;
    Some((generation, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuses_slots_and_refuses_a_closed_handle() {
        let mut handles = Handles::new(2);
        for round in 0..10 {
            let handle = handles.add(round).unwrap();
            assert_eq!((handles.take(handle), handles.slots.len()), (Some(round), 1));
            let next = handles.add(round).unwrap();
            assert!(handles.get(handle).is_none() && handles.take(handle).is_none());
            assert_eq!(handles.take(next), Some(round));
        }
    }

    #[test]
    fn a_slot_takes_sixteen_bytes() {
        // The shell stores a descriptor and a flag in each slot.
        assert_eq!(size_of::<Slot<(bool, i32)>>() + size_of::<u32>(), 16);
    }
}
