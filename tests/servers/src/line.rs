//! The protocol between the outer VM and the machine around it: one JSON object per line.

use serde_json::{Value, json};

/// Port on which the machine around the outer VM listens: virtio-serial.
pub const PORT: &str = "/dev/virtio-ports/mote.report";

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A step of the preparations, and seconds since the outer VM's start.
    Step(String, f64),
    Begin(String),
    /// The end of a check: its name, what it saw or why it fails, seconds.
    End(String, Result<String, String>, f64),
    /// Nothing more will come, for this reason.
    Over(String),
}

impl Line {
    pub fn json(&self) -> Value {
        match self {
            Self::Step(text, at) => json!({"step": text, "at": at}),
            Self::Begin(check) => json!({"begin": check}),
            Self::End(check, Ok(seen), took) => json!({"end": check, "seen": seen, "took": took}),
            Self::End(check, Err(why), took) => json!({"end": check, "fails": why, "took": took}),
            Self::Over(why) => json!({"over": why}),
        }
    }

    pub fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let number = |key: &str| value[key].as_f64();
        if let (Some(check), Some(took)) = (text("end"), number("took")) {
            let seen = text("seen").map(Ok).or_else(|| text("fails").map(Err))?;
            return Some(Self::End(check, seen, took));
        }
        if let (Some(step), Some(at)) = (text("step"), number("at")) {
            return Some(Self::Step(step, at));
        }
        text("begin").map(Self::Begin).or_else(|| text("over").map(Self::Over))
    }
}

pub type Say<'a> = &'a mut dyn FnMut(Line) -> Result<(), String>;

/// Returns a step that begins or ends now.
pub fn step(text: &str) -> Line {
    Line::Step(text.to_owned(), uptime())
}

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_reads_back() {
        for line in [
            Line::Step("the server is up".into(), 41.5),
            Line::Begin("exec.uname".into()),
            Line::End("exec.uname".into(), Ok("a \"b\"\nc".into()), 0.5),
            Line::End("exec.uname".into(), Err("no".into()), 1.0),
            Line::Over(String::new()),
        ] {
            let text = line.json().to_string();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(Line::parse(&text), Some(line));
        }
    }

    #[test]
    fn ignores_an_incomplete_line() {
        assert_eq!(Line::parse(r#"{"end": "exec.uname", "se"#), None);
        assert_eq!(Line::parse(r#"{"end": "exec.uname"}"#), None);
        assert_eq!(Line::parse(""), None);
    }
}
