//! The target with the program's name. Each target is a separate program, so that libFuzzer counts
//! no edges of the others.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mote_fuzz::run(env!("CARGO_BIN_NAME"), data);
});
