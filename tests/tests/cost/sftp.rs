//! Instructions of the SFTP server while the number of open handles grows.

use std::process::Command;

use mote_tests::cost::callgrind::Counter;
use mote_tests::cost::{ALWAYS, Row};
use mote_tests::sftp::{Int, Long, Reply, Session, Text, bytes, kind, open};
use mote_tests::{Scratch, agent};

use crate::steps;

pub(crate) const TEXT: &str = "\
## SFTP

Of the SFTP server's process; a column is the number of open handles.";

const PIECE: u32 = 32 * 1024;

pub(crate) fn all() -> Vec<Row> {
    let scratch = Scratch::new();
    let path = scratch.0.join("file");
    let piece = vec![7; PIECE as usize];
    std::fs::write(&path, &piece).unwrap();
    let counter = Counter::new(Scratch::new());
    let [program, arguments @ ..] = counter.by();
    let mut command = Command::new(program);
    command.args(arguments).arg(agent()).args(["sftp-server", "-d"]).arg(&scratch.0);
    let mut session = Session::with(&mut command);
    session.hello();
    let pid = session.server.0.id();
    let (mut opened, mut read, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let mut handles = Vec::new();
    for step in steps(100, 100) {
        while handles.len() < step {
            handles.push(session.open(bytes(&path), open::READ | open::WRITE));
        }
        let last = handles.last().unwrap();
        let mut of = |action: &mut dyn FnMut(&mut Session)| {
            action(&mut session);
            counter.of(pid, 20, || action(&mut session))
        };
        opened.push((
            step,
            of(&mut |session| {
                let handle = session.open(bytes(&path), open::READ);
                session.done(kind::CLOSE, &[Text(&handle)]);
            }),
        ));
        read.push((
            step,
            of(&mut |session| {
                let reply = session.ask(kind::READ, &[Text(last), Long(0), Int(PIECE)]);
                assert_eq!(reply, Reply::Data(piece.clone()));
            }),
        ));
        written.push((
            step,
            of(&mut |session| {
                session.done(kind::WRITE, &[Text(last), Long(0), Text(&piece)]);
            }),
        ));
    }
    let note = "65,536 of a session at most";
    vec![
        Row { name: "SFTP: open and close", note, cost: opened, held: ALWAYS },
        Row { name: "SFTP: read 32 KiB", note, cost: read, held: ALWAYS },
        Row { name: "SFTP: write 32 KiB", note, cost: written, held: ALWAYS },
    ]
}
