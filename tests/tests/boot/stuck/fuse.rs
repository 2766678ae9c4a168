//! A FUSE file system with one file, whose server can stop answering.

use std::sync::mpsc::{Receiver, channel};

use mote_tests::prelude::*;

/// Opcodes (`linux/fuse.h`).
const LOOKUP: u32 = 1;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
pub(crate) const ACCESS: u32 = 34;

pub(crate) struct Fuse {
    place: PathBuf,
    silent: Arc<AtomicBool>,
    /// The opcode of each request that its server has read.
    pub(crate) read: Receiver<u32>,
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Forced, so that processes that hang on the file system get an error.
        let _gone = Command::new("umount").args(["-f", "-l"]).arg(&self.place).status();
    }
}

impl Fuse {
    pub(crate) fn mount(place: &Path) -> Self {
        let mut device = File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other";
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", options, "fuse"])
            .arg(place)
            .stdin(device.try_clone().expect("FUSE"))
            .status();
        assert!(mounted.expect("mount").success());
        let silent = Arc::new(AtomicBool::new(false));
        let (sender, read) = channel();
        let hushed = silent.clone();
        thread::spawn(move || {
            let mut request = vec![0; 256 * 1024];
            while device.read(&mut request).is_ok() {
                let opcode = u32::from_ne_bytes(*request[4..].first_chunk().expect("a header"));
                let body = answer(opcode);
                if opcode == INIT || !hushed.load(Ordering::SeqCst) {
                    let length = u32::try_from(16 + body.len()).expect("a short one");
                    let mut whole = length.to_ne_bytes().to_vec();
                    whole.extend([0; 4]);
                    whole.extend_from_slice(&request[8..16]);
                    whole.extend(body);
                    device.write_all(&whole).expect("FUSE");
                }
                let _over = sender.send(opcode);
            }
        });
        Self { place: place.into(), silent, read }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.place.join("file")
    }

    pub(crate) fn fall_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
        self.read.try_iter().for_each(drop);
    }
}

fn answer(opcode: u32) -> Vec<u8> {
    let numbers: (usize, &[(usize, u32)]) = match opcode {
        // Answer with version 7.31 and minimal options.
        INIT => (64, &[(0, 7), (4, 31), (20, 4096), (24, 1)]),
        // Node 2: a regular file that anyone may read, without caching.
        LOOKUP => (128, &[(0, 2), (40, 2), (100, 0o100_444), (104, 1)]),
        OPEN => (16, &[]),
        FLUSH => (0, &[]),
        _ => (0, &[]),
    };
    let mut body = vec![0; numbers.0];
    for (at, number) in numbers.1 {
        body[*at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    body
}
