//! Guest programs that use devlxd (well-behaved, slow or misbehaving), and the application that
//! reports Ready. Each knows which results it may expect.

use crate::host::http::{Message, Reader, request};
use crate::sim_prelude::*;

/// Maximum wait for an answer: 0.25 s for a ticket, 8.6 s for ten `Retry::Patient` attempts of
/// which two time out, 5 s for TLS, 10 s for a write, 30 s each for the host's head and body
/// (docs/protocol/devlxd.md).
const ANSWER: Micros = 84 * SECOND;
/// Limits for a head, from its first byte, a body, and an idle connection (P§3.1).
const HEAD: Micros = 3 * SECOND;
const BODY: Micros = 10 * SECOND;
const IDLE: Micros = 30 * SECOND;
/// Maximum delay of the agent's own actions: to close a connection, accept it, or answer.
const SLACK: Micros = 500 * MILLI;
/// After this time, a request of a broken connection has reached the host or never will.
const OVER: Micros = 90 * SECOND;

pub(crate) struct Guest {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) flavour: Flavour,
    /// Factor of [`ANSWER`] for clients in a queue.
    pub(crate) turns: u64,
}

struct Asked {
    bytes: Vec<u8>,
    body: String,
    may_take: Micros,
}

/// A program that connects from time to time, each time in a different way.
pub(crate) async fn visitor(guest: Rc<Guest>) {
    loop {
        sleep(&guest.sim, Zone::Guest, guest.sim.dice.between(10 * MILLI, 15 * SECOND)).await;
        drop(guest.visit().await);
    }
}

pub(crate) async fn application(guest: Rc<Guest>) {
    let sim = &guest.sim;
    loop {
        let found = guest.oracle.found.seen();
        let pause = sleep(sim, Zone::Guest, sim.dice.between(SECOND, 30 * SECOND));
        if sim.dice.one_in(2) {
            pause.await;
        } else {
            // Report concurrently with a repeated Ready.
            either(pause, guest.oracle.found.after(found)).await;
            sleep(sim, Zone::Guest, sim.dice.between(0, 20 * MILLI)).await;
        }
        let word = if sim.dice.one_in(3) { Word::Started } else { Word::Ready };
        let Ok(stream) = guest.net.connect(Place::Devlxd, Zone::Guest).await else { continue };
        guest.oracle.app_asks(word);
        let status = guest.say(&stream, word).await;
        guest.oracle.app_heard(matches!(status, Ok(200)));
        if status.is_err() {
            sleep(sim, Zone::Guest, OVER).await;
        }
    }
}

impl Guest {
    async fn say(&self, stream: &Stream, word: Word) -> Result<u16, Broken> {
        // Another report, or a repeated Ready, may be in progress.
        let _wait = self.oracle.wait("the application", (self.turns + 1) * ANSWER);
        let body = format!("{{\"state\":\"{}\"}}", word.name());
        stream.write_all(&request("PATCH", "/1.0", "", &body)).await?;
        let answer = Reader::new(stream).message().await?;
        answer.map(|answer| answer.status()).ok_or(Broken)
    }

    pub(crate) async fn poll(&self) -> Result<(), Broken> {
        let excuses = self.oracle.guests_excuses();
        let stream = self.net.connect(Place::Devlxd, Zone::Guest).await.map_err(|_| Broken)?;
        let asked = self.request();
        stream.write_all(&asked.bytes).await?;
        self.answer(&mut Reader::new(&stream), &asked, excuses).await
    }

    fn request(&self) -> Asked {
        let dice = &self.sim.dice;
        let number = self.sim.number();
        let answer = self.turns * ANSWER;
        let json = format!("{{\"number\":{number}}}\n");
        let lxd = self.flavour == Flavour::Lxd;
        let (method, path, body, may_take) = match dice.below(if lxd { 6 } else { 4 }) {
            0 => ("GET", "/", "[\"/1.0\"]\n".into(), SLACK),
            1 => ("GET", "/1.0/config/user.a", number.to_string(), answer),
            2 => ("GET", "/1.0/meta-data", number.to_string(), answer),
            3 => ("GET", "/1.0/devices", json, answer),
            4 => ("POST", "/1.0/storage-pools/p/volumes/custom", json, answer),
            _ => ("GET", "/1.0/operations/x/wait?timeout=20", json, 3600 * SECOND + answer),
        };
        let extra = format!("If-Match: {number}\r\n");
        let sent = if method == "POST" { "{\"name\":\"v\",\"type\":\"custom\"}" } else { "" };
        Asked { bytes: request(method, path, &extra, sent), body, may_take }
    }

    /// Reads an answer and checks that it belongs to this request and is in time.
    async fn answer(
        &self,
        reader: &mut Reader<'_>,
        asked: &Asked,
        excuses: u64,
    ) -> Result<(), Broken> {
        let _wait = self.oracle.wait("a guest's request", asked.may_take);
        let answer = reader.message().await.and_then(|answer| answer.ok_or(Broken));
        let is_excused =
            self.net.mishaps_inside.get() > 0 || self.oracle.guests_excuses() != excuses;
        match &answer {
            Ok(Message { body, .. }) => {
                let answer = answer.as_ref().map_or(0, Message::status);
                self.sim.trace("guest is answered", answer.into(), 0);
                self.oracle.answers.set(self.oracle.answers.get() + 1);
                if answer == 200 && body != asked.body.as_bytes() {
                    let body = String::from_utf8_lossy(body);
                    self.sim.fail(format!("{body:?} is the answer to another request"));
                }
                if !is_excused && ![200, 401, 500, 503].contains(&answer) {
                    self.sim.fail(format!("a complete request is answered {answer}"));
                }
            }
            Err(Broken) if !is_excused => {
                self.sim.fail("a complete request gets no answer".into());
            }
            Err(Broken) => {}
        }
        answer.map(|_| ())
    }

    /// Checks that only the end of the connection follows the last answer, in time.
    async fn nothing_more(&self, reader: &mut Reader<'_>, limit: Micros) {
        let _wait = self.oracle.wait("an idle connection", limit + SLACK);
        let second = reader.message().await.ok().flatten();
        if let Some(second) = second.filter(|second| second.status() != 408) {
            self.sim.fail(format!("a request is answered twice: {}", second.first));
        }
    }

    async fn visit(&self) -> Result<(), Broken> {
        let (sim, dice) = (&self.sim, &self.sim.dice);
        let excuses = self.oracle.guests_excuses();
        let Ok(stream) = self.net.connect(Place::Devlxd, Zone::Guest).await else {
            return Err(Broken);
        };
        let mut reader = Reader::new(&stream);
        let all: Vec<_> = (0..dice.between(1, 3)).map(|_| self.request()).collect();
        match dice.below(8) {
            0..=2 => {
                for asked in &all {
                    stream.write_all(&asked.bytes).await?;
                    self.answer(&mut reader, asked, excuses).await?;
                }
                if dice.one_in(3) {
                    self.nothing_more(&mut reader, IDLE).await;
                }
            }
            3 => self.all_at_once(&stream, &all, excuses).await?,
            4 => {
                // Sends a request in two halves.
                let (one, other) = all[0].bytes.split_at(dice.up_to(all[0].bytes.len()));
                stream.write_all(one).await?;
                sleep(sim, Zone::Guest, dice.between(0, 2 * SECOND)).await;
                stream.write_all(other).await?;
                self.answer(&mut reader, &all[0], excuses).await?;
            }
            5 => {
                // Sends an incomplete request, or nothing. A body has more time than a head.
                let bytes = &all[0].bytes;
                stream.write_all(&bytes[..dice.up_to(bytes.len() - 1)]).await?;
                self.nothing_more(&mut reader, HEAD + BODY).await;
            }
            6 => {
                stream.write_all(&all[0].bytes).await?;
                sleep(sim, Zone::Guest, dice.between(0, 200 * MILLI)).await;
                // Disconnects.
            }
            _ => self.listen(&stream).await?,
        }
        Ok(())
    }

    /// Sends several requests at once, then perhaps ends its input, or pauses before it reads.
    async fn all_at_once(
        &self,
        stream: &Stream,
        all: &[Asked],
        excuses: u64,
    ) -> Result<(), Broken> {
        let mut reader = Reader::new(stream);
        let bytes: Vec<u8> = all.iter().flat_map(|asked| &asked.bytes).copied().collect();
        stream.write_all(&bytes).await?;
        let is_half_closed = self.sim.dice.one_in(2);
        if is_half_closed {
            stream.shutdown();
        }
        for (index, asked) in (1..).zip(all) {
            let may_take = asked.may_take.max(index * self.turns * ANSWER);
            let asked = Asked { bytes: Vec::new(), body: asked.body.clone(), may_take };
            self.answer(&mut reader, &asked, excuses).await?;
        }
        if is_half_closed {
            self.nothing_more(&mut reader, 0).await;
        }
        Ok(())
    }

    async fn listen(&self, stream: &Stream) -> Result<(), Broken> {
        stream.write_all(&request("GET", "/1.0/events", "", "")).await?;
        let mut reader = Reader::new(stream);
        reader.message().await?;
        let mut last = (0, 0);
        for _ in 0..self.sim.dice.below(5) {
            let Some(line) = reader.line().await? else { break };
            let is_permitted = ["{\"type\":\"config\"", "{\"type\":\"device\""]
                .iter()
                .any(|begin| line.starts_with(begin));
            let number = |name: &str| {
                let digits = line.split_once(name).map_or("", |(_, rest)| rest);
                let end = digits.find([',', '}']).unwrap_or(0);
                digits[..end].parse::<u64>().unwrap_or(0)
            };
            let this = (number("\"port\":"), number("\"number\":"));
            if !is_permitted || this <= last {
                self.sim.fail(format!("a guest receives {line}"));
            }
            last = this;
        }
        Ok(())
    }
}
