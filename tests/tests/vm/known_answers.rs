//! What ring answers on the CPU of the VM, which has fewer instructions than this machine's (no AES, no ADX), or is of
//! another architecture: other functions of it run there.

use mote_tests::vm::run::{output, run};
use mote_tests::{Scratch, tool};

#[test]
fn ring_as_it_is_linked_gives_the_known_answers() {
    let scratch = Scratch::new();
    let pushed = format!("{}:/run/vectors", tool("MOTE_VECTORS", "target/vectors").display());
    let (answers, err, code) = output(run(&scratch.0, &["--push", &pushed], &["/run/vectors"]));
    assert_eq!((err.as_str(), code), ("", Some(0)), "{answers}");
    assert_eq!(answers.lines().count(), 12, "{answers}");
    println!("{answers}");
}
