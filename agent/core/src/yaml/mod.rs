//! A YAML reader for `metadata.yaml` (P§1.7) and the policy files (P§1.4), event by event.
//!
//! Supported: block and flow collections; plain, single and double quoted scalars, also over
//! several lines; block scalars (skipped, their text is never needed); comments; one document with
//! or without its markers. Everything else is an error with its line: anchors, aliases, tags,
//! directives, `? ` keys, tabs between tokens, carriage returns that do not end a line. A full YAML
//! 1.2 parser reads any accepted document the same way; `tests/fuzz` checks that.
//!
//! Depth and key length are bounded, and parsing neither recurses nor allocates.

use core::fmt;

use cursor::Cursor;
use heapless::Vec;
pub use scalar::Scalar;
use scalar::Style;

mod cursor;
mod flow;
mod scalar;

/// Maximum nesting depth, in levels; `metadata.yaml` has four. Beyond it: [`Why::TooDeep`].
pub const DEPTH: usize = 16;

/// One parsing event. A map's children alternate: key, value; keys are scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'y> {
    Map,
    Seq,
    End,
    /// A scalar; an omitted value is an empty plain scalar.
    Scalar(Scalar<'y>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Map { indent: usize },
    Seq { indent: usize },
    FlowMap,
    FlowSeq,
}

/// The parser's state: what must come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Start,
    /// A node in block style.
    Node(Position),
    /// The next entry of the innermost block collection, or its end.
    Next,
    /// An item, a key, or the closing bracket, in flow style.
    FlowItem,
    /// `:` and a value, or neither, in flow style; `quoted`: the key was in quotes.
    FlowValue {
        quoted: bool,
    },
    /// A comma or the closing bracket, in flow style.
    FlowNext,
    Done,
}

/// Allowed position of a node in block style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// Minimum indentation, in columns.
    min: usize,
    /// Column of the parent key, at which a sequence may also begin without further indentation.
    seq_at: Option<usize>,
    /// Still on the line of its key, where no block collection may begin.
    inline: bool,
}

#[derive(Debug)]
pub struct Parser<'y> {
    cursor: Cursor<'y>,
    frames: Vec<Frame, DEPTH>,
    expect: Expect,
    /// Minimum indentation of lines within the outermost bracket, in columns.
    flow_min: usize,
}

impl<'y> Parser<'y> {
    /// Creates a parser at the start of a document. Errors: [`Why::Encoding`] or [`Why::Control`].
    pub fn new(bytes: &'y [u8]) -> Result<Self, YamlError> {
        Ok(Self {
            cursor: Cursor::new(bytes)?,
            frames: Vec::new(),
            expect: Expect::Start,
            flow_min: 0,
        })
    }

    /// Returns the current line, counted from 1, for error messages.
    pub fn line(&self) -> u32 {
        self.cursor.line()
    }

    /// Returns a [`Why::Shape`] error at the current line.
    pub fn shape(&self, expected: &'static str) -> YamlError {
        self.cursor.error(Why::Shape(expected))
    }

    /// Returns the next event; `None` at the end of the document.
    /// Errors: [`YamlError`]; after an error, further events mean nothing.
    #[expect(clippy::should_implement_trait, reason = "an iterator would hide the errors' weight")]
    pub fn next(&mut self) -> Result<Option<Event<'y>>, YamlError> {
        let event = match self.expect {
            Expect::Start => self.start()?,
            Expect::Node(position) => self.node(position)?,
            Expect::Next => return self.continued(),
            Expect::FlowItem => self.flow_item()?,
            Expect::FlowValue { quoted } => self.flow_value(quoted)?,
            Expect::FlowNext => self.flow_next()?,
            Expect::Done => return Ok(None),
        };
        Ok(Some(event))
    }

    /// Returns the next event, where the document must not end.
    /// Errors: as for [`Parser::next`], and [`Why::Truncated`] at the end.
    #[inline(never)] // its size
    pub fn step(&mut self) -> Result<Event<'y>, YamlError> {
        self.next()?.ok_or_else(|| self.cursor.error(Why::Truncated))
    }

    /// Skips the rest of the node that began with `first`. Errors: as for [`Parser::step`].
    #[inline(never)] // its size
    pub fn skip(&mut self, first: Event<'y>) -> Result<(), YamlError> {
        match first {
            Event::Scalar(_) | Event::End => return Ok(()),
            Event::Map | Event::Seq => {}
        }
        let depth = self.frames.len();
        while self.frames.len() >= depth {
            let _inside = self.step()?;
        }
        Ok(())
    }

    /// Skips a whole node. Errors: as for [`Parser::step`].
    pub fn skip_next(&mut self) -> Result<(), YamlError> {
        let first = self.step()?;
        self.skip(first)
    }

    /// Returns whether a map begins; false for `null` or nothing.
    /// Errors: as for [`Parser::step`]; [`Why::Shape`] for anything else.
    #[inline(never)] // its size
    pub fn begins_map(&mut self) -> Result<bool, YamlError> {
        match self.step()? {
            Event::Map => Ok(true),
            Event::Scalar(scalar) if scalar.is_null() => Ok(false),
            Event::Scalar(_) | Event::Seq | Event::End => Err(self.shape("a map")),
        }
    }

    fn start(&mut self) -> Result<Event<'y>, YamlError> {
        self.cursor.skip_blank()?;
        if self.cursor.column() == 0 && self.cursor.byte() == Some(b'%') {
            return Err(self.cursor.error(Why::Unsupported("a directive")));
        }
        let inline = self.cursor.at_marker(b"---");
        if inline {
            self.cursor.advance(3);
        }
        self.node(Position { min: 0, seq_at: None, inline })
    }

    fn node(&mut self, mut position: Position) -> Result<Event<'y>, YamlError> {
        let line = self.cursor.line();
        self.cursor.skip_blank()?;
        let fresh = self.cursor.line() != line;
        position.inline &= !fresh;
        self.expect = Expect::Next;
        let column = self.cursor.column();
        if self.cursor.ended() || (fresh && column < position.min) {
            let below = position.seq_at == Some(column) && self.cursor.at_dash();
            if !below || self.cursor.ended() {
                return Ok(Event::Scalar(Scalar::EMPTY));
            }
        }
        if self.cursor.at_dash() {
            self.block(Frame::Seq { indent: column }, position)?;
            return Ok(Event::Seq);
        }
        self.flow_min = position.min;
        match self.cursor.byte() {
            Some(b'[') => self.open(Frame::FlowSeq),
            Some(b'{') => self.open(Frame::FlowMap),
            Some(b'|' | b'>') => self.cursor.block_scalar(position.min).map(Event::Scalar),
            _ => {
                let mut ahead = self.cursor;
                if ahead.key()?.is_some() {
                    self.block(Frame::Map { indent: column }, position)?;
                    return Ok(Event::Map);
                }
                let scalar = self.cursor.scalar(Some(position.min), false)?;
                self.cursor.end_of_line()?;
                Ok(Event::Scalar(scalar))
            }
        }
    }

    /// Begins a collection in block style, if the position allows one.
    fn block(&mut self, frame: Frame, position: Position) -> Result<(), YamlError> {
        if position.inline {
            return Err(self.cursor.error(Why::Unexpected));
        }
        self.push(frame)
    }

    fn push(&mut self, frame: Frame) -> Result<(), YamlError> {
        self.frames.push(frame).map_err(|_| self.cursor.error(Why::TooDeep))
    }

    /// Returns the event after a complete node, or after the start of a collection in block style.
    fn continued(&mut self) -> Result<Option<Event<'y>>, YamlError> {
        self.cursor.skip_blank()?;
        let Some(frame) = self.frames.last().copied() else {
            return self.finish().map(|()| None);
        };
        let indent = match frame {
            Frame::Map { indent } | Frame::Seq { indent } => indent,
            // After a node in flow style the state is FlowNext.
            Frame::FlowMap | Frame::FlowSeq => return Err(self.cursor.error(Why::Unexpected)),
        };
        let column = self.cursor.column();
        if self.cursor.ended() || column < indent {
            return Ok(Some(self.close()));
        }
        if column > indent {
            return Err(self.cursor.error(Why::Indent));
        }
        let min = indent + 1;
        if let Frame::Map { .. } = frame {
            let key = self.cursor.key()?.ok_or_else(|| self.cursor.error(Why::Unexpected))?;
            self.expect = Expect::Node(Position { min, seq_at: Some(indent), inline: true });
            return Ok(Some(Event::Scalar(key)));
        }
        if !self.cursor.at_dash() {
            // A sequence at its key's column ends at the next key.
            let below = self.frames.len().checked_sub(2).and_then(|at| self.frames.get(at));
            if below != Some(&Frame::Map { indent }) {
                return Err(self.cursor.error(Why::Unexpected));
            }
            return Ok(Some(self.close()));
        }
        self.cursor.advance(1);
        self.node(Position { min, seq_at: None, inline: false }).map(Some)
    }

    fn close(&mut self) -> Event<'y> {
        self.frames.pop();
        self.expect = match self.frames.last() {
            Some(Frame::FlowMap | Frame::FlowSeq) => Expect::FlowNext,
            Some(Frame::Map { .. } | Frame::Seq { .. }) | None => Expect::Next,
        };
        Event::End
    }

    /// Checks that nothing but the end follows the root node.
    fn finish(&mut self) -> Result<(), YamlError> {
        if self.cursor.at_marker(b"...") {
            self.cursor.advance(3);
            self.cursor.end_of_line()?;
            self.cursor.skip_blank()?;
        }
        self.expect = Expect::Done;
        if self.cursor.at_marker(b"---") {
            return Err(self.cursor.error(Why::Unsupported("a second document")));
        }
        if self.cursor.byte().is_some() { Err(self.cursor.error(Why::Unexpected)) } else { Ok(()) }
    }
}

/// Maximum length of a key, in bytes, as in YAML 1.2 §7.4. Beyond it: [`Why::LongKey`].
pub(super) const KEY: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line, counted from 1.
    pub line: u32,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The document is not UTF-8.
    Encoding,
    /// A control character, or a character that ends lines in some parsers only.
    Control,
    /// A YAML feature that is not supported; carries its name.
    Unsupported(&'static str),
    /// Too little or too much indentation.
    Indent,
    /// Text that is not valid in its position.
    Unexpected,
    /// A bracket or quote without its end.
    Truncated,
    Escape,
    /// Nested deeper than [`DEPTH`].
    TooDeep,
    /// A key longer than YAML allows.
    LongKey,
    /// Valid YAML, but not what the caller expects; carries the expectation.
    Shape(&'static str),
}

impl fmt::Display for YamlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        out.write_str(match self.why {
            Why::Encoding => "not UTF-8",
            Why::Control => "a control character",
            Why::Unsupported(what) => return write!(out, "{what} is not supported"),
            Why::Indent => "wrong indentation",
            Why::Unexpected => "unexpected text",
            Why::Truncated => "unclosed bracket or quote",
            Why::Escape => "an invalid escape",
            Why::TooDeep => "nested too deeply",
            Why::LongKey => "a key is too long",
            Why::Shape(what) => return write!(out, "{what} expected"),
        })
    }
}

#[cfg(test)]
mod tests;
