//! YAML documents. Invariants: parsing ends, brackets are paired, a full YAML 1.2 parser reads the
//! same from every accepted document, and so does mote when it is written in block or flow style.

use core::slice::Iter;

use mote_core::first_boot::template;
use mote_core::guest_path::Target;
use mote_core::hostapi::policy::{Policy, Whose};
use mote_core::yaml::{self, Event, YamlError};
use saphyr_parser::{Event as Theirs, Parser, ScalarStyle};

#[derive(Debug, PartialEq)]
enum Step {
    Map,
    Seq,
    End,
    Null,
    Block,
    Text(String),
}

fn ours(data: &[u8]) -> Result<Vec<Step>, YamlError> {
    let mut parser = yaml::Parser::new(data)?;
    let mut steps = Vec::new();
    let mut open = 0u32;
    while let Some(event) = parser.next()? {
        steps.push(match event {
            Event::Map => Step::Map,
            Event::Seq => Step::Seq,
            Event::End => Step::End,
            Event::Scalar(scalar) if scalar.is_block() => Step::Block,
            Event::Scalar(scalar) if scalar.is_null() => Step::Null,
            Event::Scalar(scalar) => {
                let mut text = String::new();
                scalar.text(|piece| text.push_str(piece));
                assert!(scalar.is(&text));
                Step::Text(text)
            }
        });
        match event {
            Event::Map | Event::Seq => open += 1,
            Event::End => open -= 1,
            Event::Scalar(_) => {}
        }
        assert!(steps.len() <= 2 * data.len() + 2);
    }
    assert_eq!(open, 0);
    Ok(steps)
}

fn theirs(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for event in Parser::new_from_str(text) {
        match event.map_err(|error| error.to_string())?.0 {
            Theirs::MappingStart(..) => steps.push(Step::Map),
            Theirs::SequenceStart(..) => steps.push(Step::Seq),
            Theirs::MappingEnd | Theirs::SequenceEnd => steps.push(Step::End),
            Theirs::Scalar(text, style, ..) => steps.push(match style {
                ScalarStyle::Literal | ScalarStyle::Folded => Step::Block,
                ScalarStyle::Plain if ["", "~", "null", "Null", "NULL"].contains(&&*text) => {
                    Step::Null
                }
                _ => Step::Text(text.into_owned()),
            }),
            _ => {}
        }
    }
    if steps.is_empty() {
        steps.push(Step::Null);
    }
    Ok(steps)
}

/// Writes a node, in flow style or in block style. `deep` is its indentation there.
fn write(node: &Step, rest: &mut Iter<'_, Step>, is_flow: bool, deep: usize, out: &mut String) {
    match node {
        Step::Map | Step::Seq => {
            let is_flow = is_flow || rest.as_slice().first() == Some(&Step::End);
            let is_map = *node == Step::Map;
            let (open, close) = match (is_flow, is_map) {
                (false, _) => ("", ""),
                (true, true) => (" {", "}"),
                (true, false) => (" [", "]"),
            };
            *out += open;
            while let Some(one) = rest.next().filter(|one| **one != Step::End) {
                match (is_flow, is_map) {
                    (true, _) => {}
                    (false, true) => *out += &format!("\n{:deep$}", ""),
                    (false, false) => *out += &format!("\n{:deep$}-", ""),
                }
                write(one, rest, is_flow, deep + 2, out);
                if is_map {
                    out.push(':');
                    write(rest.next().unwrap(), rest, is_flow, deep + 2, out);
                }
                *out += if is_flow { "," } else { "" };
            }
            *out += close;
        }
        Step::Text(text) => *out += &format!(" {}", serde_json::to_string(text).unwrap()),
        Step::Null | Step::Block | Step::End => *out += " ~",
    }
}

fn is_read_as_written(steps: &[Step]) {
    // Longer keys are refused, and so are characters that are not printable without an escape.
    let is_odd = |text: &str| text.chars().any(|it| it > '~' && !it.is_alphanumeric());
    let is_other = |step: &Step| match step {
        Step::Text(text) => text.len() > 20 || is_odd(text),
        other => *other == Step::Block,
    };
    if steps.iter().any(is_other) {
        return;
    }
    for is_flow in [false, true] {
        let mut out = String::from("---");
        write(&steps[0], &mut steps[1..].iter(), is_flow, 0, &mut out);
        assert_eq!(ours(out.as_bytes()).as_deref(), Ok(steps), "{out}");
    }
}

pub fn run(data: &[u8]) {
    // Parsing policy and templates from it must not panic, and no path may lead out of the root.
    for whose in [Whose::Mote, Whose::Incus] {
        let _policy = Policy::from_yaml(data, whose, true, &mut |_| {});
    }
    let _end = template::each(data, |one| {
        if let Ok(template) = one {
            assert!(Target::absolute(&template.target).is_some() && !template.name.contains('/'));
        }
    });
    let Ok(steps) = ours(data) else { return };
    is_read_as_written(&steps);
    let text = core::str::from_utf8(data).expect("what was read is text");
    let theirs = theirs(text);
    // Here mote is stricter than YAML: `[a -, b]`, empty block scalars at the root, a last bracket
    // directly below its key.
    let strict = [
        "plain scalar cannot start with '-'",
        "wrongly indented line in block scalar",
        "invalid indentation at",
    ];
    if let Err(why) = &theirs
        && strict.iter().any(|known| why.contains(known))
    {
        return;
    }
    assert_eq!(Ok(steps), theirs);
}
