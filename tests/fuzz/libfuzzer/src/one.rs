//! The target with the program's name: separate programs, so that no edges of others count.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mote_fuzz::run(env!("CARGO_BIN_NAME"), data);
});
