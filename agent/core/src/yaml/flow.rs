//! Flow style: `[a, b]` and `{a: b}`, JSON included (YAML 1.2 §7.4).

use super::cursor::is_flow;
use super::{Event, Expect, Frame, Parser, Scalar, Style, Why, YamlError};

impl<'y> Parser<'y> {
    pub(super) fn open(&mut self, frame: Frame) -> Result<Event<'y>, YamlError> {
        self.push(frame)?;
        self.cursor.advance(1);
        self.expect = Expect::FlowItem;
        Ok(if frame == Frame::FlowMap { Event::Map } else { Event::Seq })
    }

    /// Skips blanks up to the next token; the document must not end before the bracket is closed.
    fn flow_blank(&mut self) -> Result<(), YamlError> {
        let line = self.cursor.line();
        self.cursor.skip_blank()?;
        if self.cursor.ended() {
            return Err(self.cursor.error(Why::Truncated));
        }
        // A closing bracket at its key's column is common.
        let fresh = self.cursor.line() != line && !matches!(self.cursor.byte(), Some(b'}' | b']'));
        if fresh && self.cursor.column() < self.flow_min {
            return Err(self.cursor.error(Why::Indent));
        }
        Ok(())
    }

    fn in_map(&self) -> bool {
        self.frames.last() == Some(&Frame::FlowMap)
    }

    fn flow_close(&mut self) -> Result<Option<Event<'y>>, YamlError> {
        let bracket = if self.in_map() { b'}' } else { b']' };
        if self.cursor.byte() != Some(bracket) {
            return Ok(None);
        }
        self.cursor.advance(1);
        let end = self.close();
        if self.expect == Expect::Next {
            self.cursor.end_of_line()?;
        }
        Ok(Some(end))
    }

    pub(super) fn flow_item(&mut self) -> Result<Event<'y>, YamlError> {
        self.flow_blank()?;
        if let Some(end) = self.flow_close()? {
            return Ok(end);
        }
        if !self.in_map() {
            let item = self.flow_node()?;
            if let Event::Scalar(_) = item {
                self.refuse_pair()?;
            }
            return Ok(item);
        }
        if let Some(b'[' | b'{') = self.cursor.byte() {
            return Err(self.cursor.error(Why::Unsupported("a collection as a key")));
        }
        let begin = self.cursor.at();
        let key = self.flow_scalar()?;
        if self.cursor.at() - begin > super::KEY {
            return Err(self.cursor.error(Why::LongKey));
        }
        self.expect = Expect::FlowValue { quoted: key.style() != Style::Plain };
        Ok(Event::Scalar(key))
    }

    /// Refuses `[a: b]`, a sequence that contains a map.
    fn refuse_pair(&self) -> Result<(), YamlError> {
        let mut ahead = self.cursor;
        ahead.skip_blank()?;
        let pair = ahead.byte() == Some(b':');
        if pair { Err(ahead.error(Why::Unsupported("a pair in a sequence"))) } else { Ok(()) }
    }

    pub(super) fn flow_value(&mut self, quoted: bool) -> Result<Event<'y>, YamlError> {
        self.flow_blank()?;
        // Only some parsers take `a:[` as a key and a value.
        let bracket = matches!(self.cursor.ahead(1), Some(b'[' | b'{'));
        let colon = self.cursor.byte() == Some(b':')
            && (quoted || (self.cursor.at_colon(true) && !bracket));
        if colon {
            self.cursor.advance(1);
            self.flow_blank()?;
        }
        if colon && !matches!(self.cursor.byte(), Some(b',' | b'}')) {
            return self.flow_node();
        }
        self.expect = Expect::FlowNext;
        Ok(Event::Scalar(Scalar::EMPTY))
    }

    fn flow_node(&mut self) -> Result<Event<'y>, YamlError> {
        match self.cursor.byte() {
            Some(b'[') => self.open(Frame::FlowSeq),
            Some(b'{') => self.open(Frame::FlowMap),
            _ => {
                self.expect = Expect::FlowNext;
                self.flow_scalar().map(Event::Scalar)
            }
        }
    }

    fn flow_scalar(&mut self) -> Result<Scalar<'y>, YamlError> {
        self.cursor.scalar(Some(self.flow_min), true)
    }

    pub(super) fn flow_next(&mut self) -> Result<Event<'y>, YamlError> {
        self.flow_blank()?;
        if let Some(end) = self.flow_close()? {
            return Ok(end);
        }
        if self.cursor.byte() != Some(b',') {
            let why = if is_flow(self.cursor.byte()) { Why::Truncated } else { Why::Unexpected };
            return Err(self.cursor.error(why));
        }
        self.cursor.advance(1);
        self.flow_item()
    }
}
