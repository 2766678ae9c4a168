//! Reads a policy file (P§1.4): `features: {NAME: bool}`, and in mote's own file limits instead of
//! `true`, and the list `ready-when`.

use core::fmt;

use super::whole::{Limit, Policy, range};
use super::{Capability, Features, known, quoted};
use crate::guest_path::Target;
use crate::ready_when::Condition;
use crate::yaml::{Event, Parser, Scalar, YamlError};

/// Maximum number of faults reported per file: enough to correct it in one go.
const FAULTS: usize = 8;
/// Maximum number of items in a list, because each request is compared with all of them. A file
/// with more is invalid and denies everything.
const ITEMS: usize = 64;
/// The capabilities known to Incus' own agent.
const INCUS: Features = Features(0x7f);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// mote's file: `features` names everything that is allowed, and may contain limits.
    Mote,
    /// Incus' agent's file: no limits. Capabilities unknown to that agent are allowed unless the
    /// file denies them by name.
    Incus,
}

/// Whose file it is, and whether to read limits.
type Way = (Whose, bool);
type Tell<'t> = &'t mut dyn FnMut(&dyn fmt::Display);
type Bad<'b> = &'b mut dyn FnMut(Fault<'_>);

impl Policy {
    /// Reads a file. Without the map `features` everything is allowed; with it, only the names
    /// whose value is true or a map of limits.
    ///
    /// A file with any fault allows nothing; its first `FAULTS` faults are passed to `tell`.
    /// Without `limits`, limits are ignored: the build lacks the capabilities they apply to.
    pub fn from_yaml(bytes: &[u8], whose: Whose, limits: bool, tell: Tell<'_>) -> Self {
        let mut faults = 0;
        let mut bad = |fault: Fault<'_>| {
            faults += 1;
            if faults <= FAULTS {
                tell(&fault);
            }
        };
        let policy =
            read(bytes, (whose, limits), &mut bad).map_err(|error| bad(Fault::Yaml(error)));
        policy.ok().filter(|_| faults == 0).unwrap_or_else(|| Features::NONE.into())
    }
}

/// Reads a whole file; passes invalid keys and values to `bad`.
fn read(bytes: &[u8], way: Way, bad: Bad<'_>) -> Result<Policy, YamlError> {
    let mut parser = Parser::new(bytes)?;
    let (mut policy, mut waits) = (None, Policy::from(Features::NONE));
    if parser.begins_map()? {
        while let Some((line, word)) = key(&mut parser)? {
            if way.0 == Whose::Mote && word.is("ready-when") {
                let first = parser.step()?;
                items(&mut parser, first, Limit::ReadyWhen, &mut waits, bad)?;
            } else if !word.is("features") {
                unknown(&mut parser, line, word, BadWord::Key, bad)?;
            } else if policy.replace(features(&mut parser, way, bad)?).is_some() {
                wrong(bad, line, word, BadWord::Twice);
            }
        }
    }
    // The rest of the file must also be YAML.
    while parser.next()?.is_some() {}
    let mut policy = policy.unwrap_or_else(|| Features::ALL.into());
    policy.add(&waits);
    Ok(policy)
}

fn features(
    parser: &mut Parser<'_>,
    (whose, limits): Way,
    bad: Bad<'_>,
) -> Result<Policy, YamlError> {
    if !parser.begins_map()? {
        return Ok(Features::ALL.into());
    }
    let mut policy = Policy::from(match whose {
        Whose::Mote => Features::NONE,
        Whose::Incus => Features(Features::ALL.0 & !INCUS.0),
    });
    let mut seen = 0;
    while let Some((line, word)) = key(parser)? {
        let Some(capability) = Capability::ALL.into_iter().find(|one| word.is(one.name())) else {
            unknown(parser, line, word, BadWord::Feature, bad)?;
            continue;
        };
        let bit = capability.bit();
        if seen & bit != 0 {
            wrong(bad, line, word, BadWord::Twice);
        }
        seen |= bit;
        let value = parser.step()?;
        let is_limited = Limit::ALL.iter().any(|(.., of)| *of == capability);
        let is_allowed = if value == Event::Map && whose == Whose::Mote && is_limited {
            if limits {
                read_limits(parser, capability, &mut policy, bad)?;
            } else {
                parser.skip(value)?;
            }
            true
        } else {
            boolean(parser, value, Null::IsFalse, bad)?
        };
        policy.features.0 =
            if is_allowed { policy.features.0 | bit } else { policy.features.0 & !bit };
    }
    Ok(policy)
}

/// Reads the limits of one capability into `policy`. An empty map, surely unintended, is a fault.
fn read_limits(
    parser: &mut Parser<'_>,
    capability: Capability,
    policy: &mut Policy,
    bad: Bad<'_>,
) -> Result<(), YamlError> {
    let mut seen = 0;
    while let Some((line, word)) = key(parser)? {
        let mut all = Limit::ALL.iter();
        let known = all.find(|(name, _, of)| *of == capability && word.is(name));
        let Some(&(_, limit, _)) = known else {
            unknown(parser, line, word, BadWord::Limit(capability), bad)?;
            continue;
        };
        if seen & limit.bit() != 0 {
            wrong(bad, line, word, BadWord::Twice);
        }
        seen |= limit.bit();
        let value = parser.step()?;
        if matches!(limit, Limit::ReadOnly | Limit::Cpus | Limit::Memory | Limit::Disks) {
            // Of a part that is on by default, record that it is off.
            let is_on = matches!(limit, Limit::Cpus | Limit::Memory);
            if boolean(parser, value, Null::IsBad, bad)? != is_on {
                policy.limit(limit);
            }
        } else {
            policy.limit(limit);
            items(parser, value, limit, policy, bad)?;
        }
    }
    if seen == 0 {
        misshapen(parser, "at least one limit", bad);
    }
    Ok(())
}

/// Returns whether a limit accepts this item, and the error text if it does not.
fn judge(limit: Limit, text: &str) -> (bool, &'static str) {
    let numbers = range(text);
    match limit {
        Limit::Users | Limit::Groups => {
            (numbers.is_some(), "not an ID or range of IDs, like 1000-1999")
        }
        Limit::Ports => (
            numbers.is_some_and(|(first, last)| first > 0 && last <= u16::MAX.into()),
            "not a port or range of ports, like 8080-8090",
        ),
        Limit::ReadyWhen => (Condition::parse(text).is_some(), "not a condition, like 'port 80'"),
        Limit::Commands
        | Limit::Below
        | Limit::ReadOnly
        | Limit::Cpus
        | Limit::Memory
        | Limit::Disks => (
            Target::absolute(text).is_some() && !text.contains(char::is_control),
            "not an absolute path without '..'",
        ),
    }
}

/// Reads a limit's list.
fn items<'y>(
    parser: &mut Parser<'y>,
    first: Event<'y>,
    limit: Limit,
    policy: &mut Policy,
    bad: Bad<'_>,
) -> Result<(), YamlError> {
    if first != Event::Seq {
        misshapen(parser, "a list", bad);
        return parser.skip(first);
    }
    let mut count = 0;
    loop {
        let value = parser.step()?;
        let line = parser.line();
        let word = match value {
            Event::End => return Ok(()),
            Event::Scalar(word) => word,
            Event::Map | Event::Seq => {
                misshapen(parser, "an item of a list", bad);
                parser.skip(value)?;
                continue;
            }
        };
        count += 1;
        if count > ITEMS {
            return Err(parser.shape("at most 64 items"));
        }
        let text = word.string();
        match judge(limit, &text) {
            (true, _) => policy.item(limit, &text),
            (false, expected) => wrong(bad, line, word, BadWord::Value(expected)),
        }
    }
}

/// What null means as a boolean value.
#[derive(PartialEq, Eq)]
enum Null {
    IsFalse,
    IsBad,
}

/// Reads a boolean value; anything else is a fault, and counts as false.
fn boolean<'y>(
    parser: &mut Parser<'y>,
    value: Event<'y>,
    null: Null,
    bad: Bad<'_>,
) -> Result<bool, YamlError> {
    let line = parser.line();
    match value {
        Event::Scalar(word) if word.is_null() && null == Null::IsFalse => Ok(false),
        Event::Scalar(word) => {
            let truth = word.boolean();
            if truth.is_none() {
                wrong(bad, line, word, BadWord::Value("neither true nor false"));
            }
            Ok(truth == Some(true))
        }
        Event::Map | Event::Seq | Event::End => {
            misshapen(parser, "true or false", bad);
            parser.skip(value)?;
            Ok(false)
        }
    }
}

#[inline(never)] // its size
fn wrong(bad: Bad<'_>, line: u32, word: Scalar<'_>, why: BadWord) {
    bad(Fault::Word { line, word, why });
}

#[inline(never)] // its size
fn misshapen(parser: &Parser<'_>, expected: &'static str, bad: Bad<'_>) {
    bad(Fault::Yaml(parser.shape(expected)));
}

/// Reports an unknown key and skips its value.
fn unknown<'y>(
    parser: &mut Parser<'y>,
    line: u32,
    word: Scalar<'y>,
    why: BadWord,
    bad: Bad<'_>,
) -> Result<(), YamlError> {
    wrong(bad, line, word, why);
    parser.skip_next()
}

/// Returns the next key of the open map, with its line; `None` at the end of the map.
#[inline(never)]
fn key<'y>(parser: &mut Parser<'y>) -> Result<Option<(u32, Scalar<'y>)>, YamlError> {
    match parser.step()? {
        Event::Scalar(word) => Ok(Some((parser.line(), word))),
        Event::Map | Event::Seq | Event::End => Ok(None),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault<'y> {
    /// The file is not YAML, or has an unexpected structure.
    Yaml(YamlError),
    /// An invalid key or value, `word`; lines are counted from 1.
    Word { line: u32, word: Scalar<'y>, why: BadWord },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadWord {
    /// A key of `features` that is not a capability.
    Feature,
    /// A key of a capability's map that is not one of its limits.
    Limit(Capability),
    /// A key of the file other than `features`.
    Key,
    /// A value of a wrong type; holds the expected one.
    Value(&'static str),
    Twice,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, word, why) = match self {
            Self::Yaml(error) => return fmt::Display::fmt(error, out),
            Self::Word { line, word, why } => (line, word, why),
        };
        write!(out, "line {line}: ")?;
        out.write_str(match why {
            BadWord::Limit(_) | BadWord::Key => "unknown key ",
            BadWord::Feature => "unknown feature ",
            BadWord::Value(_) | BadWord::Twice => "",
        })?;
        quoted(out, &mut |sink| word.text(|piece| sink(piece)))?;
        match why {
            BadWord::Key => out.write_str("; known: features"),
            BadWord::Feature => known(out, &mut Capability::ALL.into_iter().map(Capability::name)),
            BadWord::Limit(capability) => {
                let all = Limit::ALL.iter();
                let mut names = all.filter_map(|(name, _, of)| (of == capability).then_some(*name));
                known(out, &mut names)
            }
            BadWord::Value(expected) => {
                out.write_str(" is ")?;
                out.write_str(expected)
            }
            BadWord::Twice => out.write_str(" occurs twice"),
        }
    }
}
