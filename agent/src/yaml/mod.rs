//! The YAML that image builders and people write: enough for `metadata.yaml` (P§1.7) and for the
//! policy files (P§1.4), read event by event.
//!
//! Known: block and flow collections, plain, single and double quoted scalars (also over several
//! lines), block scalars (passed over, their text is never needed), comments, one document with or
//! without its markers. Everything else is refused with its line: anchors, aliases, tags,
//! directives, `? ` keys, tabs between words, carriage returns. What is read here reads the same
//! in a full YAML 1.2 parser; `tests/fuzz` holds it to that.
//!
//! Depth and key length are bounded, and nothing recurses or allocates.

use core::fmt;

use heapless::Vec;

mod cursor;
mod flow;
mod scalar;

use cursor::Cursor;
pub use scalar::Scalar;
use scalar::Style;

/// Deepest nesting, levels; `metadata.yaml` has four. Over it: refused.
pub const DEPTH: usize = 16;
/// Longest key, bytes (YAML 1.2 §7.4 has it). Over it: refused.
const KEY: usize = 1024;

/// What was found where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line, counted from 1.
    pub line: u32,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Not UTF-8.
    Encoding,
    /// A character that does not belong in a text file, or ends lines in some parsers only.
    Control,
    /// YAML that is not read here; carries its name.
    Unsupported(&'static str),
    /// Indented less or more than what it belongs to.
    Indent,
    /// Something that cannot stand there.
    Unexpected,
    /// Brackets or quotes that stay open.
    Truncated,
    /// A bad escape in double quotes.
    Escape,
    /// Nested deeper than [`DEPTH`].
    TooDeep,
    /// A key longer than YAML allows.
    LongKey,
    /// Readable, but not of the shape asked for; carries what should be there.
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
            Why::Truncated => "brackets or quotes stay open",
            Why::Escape => "a bad escape",
            Why::TooDeep => "nested too deeply",
            Why::LongKey => "a key is too long",
            Why::Shape(what) => return write!(out, "{what} expected"),
        })
    }
}

/// One step through a document. A map's children alternate: key, value; keys are scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'y> {
    /// A map begins.
    Map,
    /// A sequence begins.
    Seq,
    /// The innermost map or sequence ends.
    End,
    /// A scalar; what is left out is a plain empty one.
    Scalar(Scalar<'y>),
}

/// An open collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Map { indent: usize },
    Seq { indent: usize },
    FlowMap,
    FlowSeq,
}

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The root.
    Start,
    /// A node in block style, indented by `min` at least.
    Node(Place),
    /// Whatever the innermost collection has next.
    Next,
    /// In flow style: an item, a key, or the closing bracket.
    FlowItem,
    /// In flow style: `:` and a value, or neither; `quoted` is what the key was.
    FlowValue { quoted: bool },
    /// In flow style: a comma or the closing bracket.
    FlowNext,
    /// Nothing: the document has been read.
    Done,
}

/// Where a node in block style may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Its least indentation.
    min: usize,
    /// A sequence may stand just below its key.
    seq_at: Option<usize>,
    /// On the line of its key, where no block collection may begin.
    inline: bool,
}

/// Reads one document.
#[derive(Debug)]
pub struct Parser<'y> {
    cursor: Cursor<'y>,
    frames: Vec<Frame, DEPTH>,
    expect: Expect,
    /// The least indentation of lines within the outermost bracket.
    flow_min: usize,
}

impl<'y> Parser<'y> {
    /// At the front of this document.
    ///
    /// # Errors
    /// [`YamlError`] if it cannot be text.
    pub fn new(bytes: &'y [u8]) -> Result<Self, YamlError> {
        Ok(Self {
            cursor: Cursor::new(bytes)?,
            frames: Vec::new(),
            expect: Expect::Start,
            flow_min: 0,
        })
    }

    /// The line we are at, for errors about what was read.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.cursor.line()
    }

    /// An error here.
    #[must_use]
    pub fn shape(&self, expected: &'static str) -> YamlError {
        self.cursor.error(Why::Shape(expected))
    }

    /// The next step; `None` at the end.
    ///
    /// # Errors
    /// [`YamlError`]; reading on gives no more than errors or the end.
    #[expect(clippy::should_implement_trait, reason = "an iterator would hide the errors' weight")]
    pub fn next(&mut self) -> Result<Option<Event<'y>>, YamlError> {
        let event = match self.expect {
            Expect::Start => self.start()?,
            Expect::Node(place) => self.node(place)?,
            Expect::Next => return self.continued(),
            Expect::FlowItem => self.flow_item()?,
            Expect::FlowValue { quoted } => self.flow_value(quoted)?,
            Expect::FlowNext => self.flow_next()?,
            Expect::Done => return Ok(None),
        };
        Ok(Some(event))
    }

    /// The next step, where there must be one.
    ///
    /// # Errors
    /// [`YamlError`].
    pub fn step(&mut self) -> Result<Event<'y>, YamlError> {
        self.next()?.ok_or_else(|| self.cursor.error(Why::Truncated))
    }

    /// Passes over the rest of the node that `first` began.
    ///
    /// # Errors
    /// [`YamlError`].
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

    fn start(&mut self) -> Result<Event<'y>, YamlError> {
        self.cursor.skip_blank()?;
        if self.cursor.column() == 0 && self.cursor.byte() == Some(b'%') {
            return Err(self.cursor.error(Why::Unsupported("a directive")));
        }
        let inline = self.cursor.at_marker(b"---");
        if inline {
            self.cursor.advance(3);
        }
        self.node(Place { min: 0, seq_at: None, inline })
    }

    fn node(&mut self, mut place: Place) -> Result<Event<'y>, YamlError> {
        let line = self.cursor.line();
        self.cursor.skip_blank()?;
        let fresh = self.cursor.line() != line;
        place.inline &= !fresh;
        self.expect = Expect::Next;
        let column = self.cursor.column();
        if self.cursor.ended() || (fresh && column < place.min) {
            let below = place.seq_at == Some(column) && self.cursor.at_dash();
            if !below || self.cursor.ended() {
                return Ok(Event::Scalar(Scalar::EMPTY));
            }
        }
        if self.cursor.at_dash() {
            self.block(Frame::Seq { indent: column }, place)?;
            return Ok(Event::Seq);
        }
        self.flow_min = place.min;
        match self.cursor.byte() {
            Some(b'[') => self.open(Frame::FlowSeq),
            Some(b'{') => self.open(Frame::FlowMap),
            Some(b'|' | b'>') => self.cursor.block_scalar(place.min).map(Event::Scalar),
            _ => {
                let mut ahead = self.cursor;
                if ahead.key()?.is_some() {
                    self.block(Frame::Map { indent: column }, place)?;
                    return Ok(Event::Map);
                }
                let scalar = self.cursor.scalar(Some(place.min))?;
                self.cursor.end_of_line()?;
                Ok(Event::Scalar(scalar))
            }
        }
    }

    /// A collection in block style begins here, if it may.
    fn block(&mut self, frame: Frame, place: Place) -> Result<(), YamlError> {
        if place.inline {
            return Err(self.cursor.error(Why::Unexpected));
        }
        self.push(frame)
    }

    fn push(&mut self, frame: Frame) -> Result<(), YamlError> {
        self.frames.push(frame).map_err(|_| self.cursor.error(Why::TooDeep))
    }

    /// What comes after a whole node, or at the front of a collection in block style.
    fn continued(&mut self) -> Result<Option<Event<'y>>, YamlError> {
        self.cursor.skip_blank()?;
        let Some(frame) = self.frames.last().copied() else {
            return self.finish().map(|()| None);
        };
        let indent = match frame {
            Frame::Map { indent } | Frame::Seq { indent } => indent,
            // A whole node in flow style expects FlowNext.
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
            self.expect = Expect::Node(Place { min, seq_at: Some(indent), inline: true });
            return Ok(Some(Event::Scalar(key)));
        }
        if !self.cursor.at_dash() {
            // A sequence just below its key ends where the next key stands.
            let below = self.frames.len().checked_sub(2).and_then(|at| self.frames.get(at));
            if below != Some(&Frame::Map { indent }) {
                return Err(self.cursor.error(Why::Unexpected));
            }
            return Ok(Some(self.close()));
        }
        self.cursor.advance(1);
        self.node(Place { min, seq_at: None, inline: false }).map(Some)
    }

    /// The innermost collection ends.
    fn close(&mut self) -> Event<'y> {
        self.frames.pop();
        self.expect = match self.frames.last() {
            Some(Frame::FlowMap | Frame::FlowSeq) => Expect::FlowNext,
            Some(Frame::Map { .. } | Frame::Seq { .. }) | None => Expect::Next,
        };
        Event::End
    }

    /// Behind the root: nothing but the end.
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

#[cfg(test)]
mod tests;
