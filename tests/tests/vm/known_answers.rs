//! Known-answer tests of ring on the VM's CPU, which has fewer instructions than this machine's (no
//! AES, no ADX) or another architecture, and so runs other functions.

use mote_tests::vm::is_pc;
use mote_tests::vm::run::{output, run};
use mote_tests::{Scratch, tool};

#[test]
fn the_linked_ring_gives_known_answers() {
    let scratch = Scratch::new();
    let pushed = format!("{}:/run/vectors", tool("MOTE_VECTORS", "target/vectors").display());
    // With SSE4.1, as in `max`, ring's ChaCha20 is not linked; without it, the agent prefers it.
    let models: &[(&str, usize)] =
        if is_pc() { &[("max", 13), ("qemu64", 14)] } else { &[("", 14)] };
    for (model, sets) in models {
        let cpu = format!("-cpu {model}");
        let options = ["--push", &pushed, "--qemu-arg", &cpu];
        let options = if model.is_empty() { &options[..2] } else { &options };
        let (answers, err, code) = output(run(&scratch.0, options, &["/run/vectors"]));
        assert_eq!((err.as_str(), code), ("", Some(0)), "{answers}");
        assert_eq!(answers.lines().count(), *sets, "{answers}");
        println!("{answers}");
    }
}
