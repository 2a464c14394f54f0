//! JSON documents, canonical.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json_canonicalizer::to_vec;

use super::literals::{Literals, is_written_back};

/// The largest whole number up to which a double tells all whole numbers apart.
const SAFE: u64 = (1 << 53) - 1;

/// The canonical form of a document by RFC 8785: members in order, no white space, one spelling of each
/// string and number.
///
/// RFC 8785 takes every number for a double, and so would merge `1` and `1.0`, or two identifiers beyond 2^53. A
/// document with such a number is written with all its numbers as texts. `None` for what is no JSON, names a
/// member twice, or has a number that was rounded when it was read, such as `0.1000000000000000055`: then its bytes are
/// what counts.
pub(super) fn canonical(document: &[u8]) -> Option<Vec<u8>> {
    let node = Node::read(document)?;
    if node.any(&Node::was_rounded) {
        None
    } else if node.any(&Node::is_merged_by_a_double) {
        let mut form = to_vec(&Texts(&node)).ok()?;
        // White space, which begins no canonical form: the two kinds of form never meet.
        form.insert(0, b' ');
        Some(form)
    } else {
        to_vec(&node).ok()
    }
}

/// A document as it was written: nothing is there twice, and a number tells what kind it is.
pub(crate) enum Node {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// A number that no double is: the nearest one stands for others, too.
    Rounded,
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    /// `None` for what is no JSON, or names a member twice.
    pub(crate) fn read(document: &[u8]) -> Option<Self> {
        let mut input = serde_json::Deserializer::from_slice(document);
        let reader = Reader(&Literals::of(document));
        let node = reader.deserialize(&mut input).ok()?;
        input.end().ok()?;
        Some(node)
    }

    /// What a JSON pointer (RFC 6901) points to.
    pub(crate) fn at(&self, pointer: &str) -> Option<&Self> {
        let Some(steps) = pointer.strip_prefix('/') else {
            return pointer.is_empty().then_some(self);
        };
        steps.split('/').try_fold(self, |node, step| match node {
            Self::Object(members) => {
                let name = step.replace("~1", "/").replace("~0", "~");
                let place = members.binary_search_by(|(member, _)| member.as_str().cmp(&name));
                Some(&members[place.ok()?].1)
            }
            Self::List(items) => {
                let is_index = step == "0" || !step.starts_with(['0', '+']);
                items.get(step.parse::<usize>().ok().filter(|_| is_index)?)
            }
            _ => None,
        })
    }

    fn any(&self, test: &impl Fn(&Self) -> bool) -> bool {
        match self {
            Self::List(items) => items.iter().any(|item| item.any(test)),
            Self::Object(members) => members.iter().any(|(_, value)| value.any(test)),
            leaf => test(leaf),
        }
    }

    /// A number that is not what its literal says, or a whole one beyond 64 bits: it arrives as a float that may stand
    /// for many.
    pub(crate) fn was_rounded(&self) -> bool {
        match self {
            Self::Rounded => true,
            Self::Float(n) => n.fract() == 0.0 && n.abs() > SAFE as f64,
            _ => false,
        }
    }

    fn is_merged_by_a_double(&self) -> bool {
        match self {
            Self::Unsigned(n) => *n > SAFE,
            Self::Signed(n) => n.unsigned_abs() > SAFE,
            Self::Float(n) => n.fract() == 0.0,
            _ => false,
        }
    }
}

/// Reads a document beside its number literals: a parser tells only what it has made of them.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Literals<'a>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Node, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        self.0.next();
        Ok(Node::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        self.0.next();
        Ok(Node::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        let literal = self.0.next().unwrap_or_default();
        Ok(match is_written_back(literal, value) {
            true => Node::Float(value),
            false => Node::Rounded,
        })
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = input.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Node, A::Error> {
        let mut members: Vec<(String, Node)> = Vec::new();
        while let Some(name) = input.next_key()? {
            members.push((name, input.next_value_seed(self)?));
        }
        members.sort_by(|a, b| a.0.cmp(&b.0));
        if members.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(A::Error::custom("a member is named twice"));
        }
        Ok(Node::Object(members))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => output.serialize_unit(),
            Self::Bool(value) => output.serialize_bool(*value),
            Self::Unsigned(value) => output.serialize_u64(*value),
            Self::Signed(value) => output.serialize_i64(*value),
            Self::Float(value) => output.serialize_f64(*value),
            Self::Rounded => Err(S::Error::custom("a number that was rounded")),
            Self::Text(value) => output.serialize_str(value),
            Self::List(items) => output.collect_seq(items),
            Self::Object(members) => {
                output.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

/// The same with numbers as texts. Texts are marked, too, so that none passes for a number.
struct Texts<'a>(&'a Node);

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Node::Unsigned(value) => output.collect_str(&format_args!("n{value}")),
            Node::Signed(value) => output.collect_str(&format_args!("n{value}")),
            // `{:?}` writes a whole float with its `.0`.
            Node::Float(value) => output.collect_str(&format_args!("n{value:?}")),
            Node::Text(value) => output.collect_str(&format_args!("t{value}")),
            Node::List(items) => {
                let mut list = output.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Texts(item))?;
                }
                list.end()
            }
            Node::Object(members) => {
                let mut object = output.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    object.serialize_entry(name, &Texts(value))?;
                }
                object.end()
            }
            other => other.serialize(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form(document: &str) -> Option<String> {
        canonical(document.as_bytes()).map(|form| String::from_utf8(form).unwrap())
    }

    #[test]
    fn order_space_and_spelling_do_not_matter() {
        // The two examples of RFC 8785, 3.2.2 and 3.2.3, in one; but for a number there that is rounded.
        let document = "{
            \"numbers\": [333333333.3333333, 4.50, 2E-3, 0.000000000000000000000000001],
            \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",
            \"literals\": [null, true, false],
            \"\\ufb33\": 1, \"\\ud83d\\ude00\": 2, \"\\u20ac\": 3, \"\\r\": 4
        }";
        let expected = "{\"\\r\":4,\"literals\":[null,true,false],\
             \"numbers\":[333333333.3333333,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\",\
             \"€\":3,\"😀\":2,\"\u{fb33}\":1}";
        assert_eq!(form(document).as_deref(), Some(expected));
        assert_eq!(
            form("[{\"b\":2,\"a\":1}]"),
            form(" [ {\"a\" : 1,\n\"b\":2}]")
        );
    }

    #[test]
    fn pointers_point_as_rfc_6901_says() {
        // Its own examples, and indexes that are none.
        let document =
            r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"k\"l":6," ":7,"m~n":8,"~1":9}"#;
        let node = Node::read(document.as_bytes()).unwrap();
        let number = |pointer| match node.at(pointer) {
            Some(Node::Unsigned(n)) => Some(*n),
            _ => None,
        };
        for (pointer, expected) in [
            ("/", 0),
            ("/a~1b", 1),
            ("/c%d", 2),
            ("/k\"l", 6),
            ("/ ", 7),
            ("/m~0n", 8),
            ("/~01", 9),
        ] {
            assert_eq!(number(pointer), Some(expected), "{pointer}");
        }
        assert!(matches!(node.at(""), Some(Node::Object(_))));
        assert!(matches!(node.at("/foo/0"), Some(Node::Text(text)) if text == "bar"));
        for nothing in [
            "foo", "/foo/2", "/foo/-", "/foo/01", "/foo/+1", "/foo/", "/x", "/a~1b/0",
        ] {
            assert!(node.at(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn what_a_double_would_merge_stays_apart() {
        let apart = [
            "[1]",
            "[1.0]",
            "[\"n1\"]",
            "[\"n1.0\"]",
            "[\"1\"]",
            "[9007199254740992]",
            "[9007199254740993]",
            "[-9007199254740993]",
            "[\"9007199254740993\"]",
            "[\"n9007199254740993\"]",
            "[0]",
            "[-0]",
            "[1.0,\"n2\"]",
            "[1.0,2]",
        ];
        for (i, a) in apart.iter().enumerate() {
            assert!(form(a).is_some(), "{a}");
            for b in &apart[i + 1..] {
                assert_ne!(form(a), form(b), "{a} and {b}");
            }
        }
        assert_eq!(
            form("{\"id\":9007199254740993,\"a\":1}"),
            form("{\"a\":1, \"id\":9007199254740993}")
        );
    }

    #[test]
    fn what_has_no_one_meaning_has_no_canonical_form() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for document in [
            "",
            "{",
            "{\"a\":1}x",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":1}",
            "[18446744073709551616]",
            "[1e400]",
            "[1e-400]",
            // The literal of the RFC's own example: of many, the same double.
            "[333333333.33333329]",
            "{\"a\":[1,{\"b\":1.000000000000000001}]}",
            "{\"1.5\":\"2.5\",\"a\":0.1000000000000000055}",
            "[0.30000000000000004441]",
            "[\"\\ud800\"]",
            &deep,
        ] {
            assert_eq!(form(document), None, "{document}");
        }
    }

    #[test]
    fn how_a_number_is_spelled_does_not_matter_where_it_is_one_number() {
        for (a, b) in [
            ("[1.0]", "[1e0]"),
            ("[1.0]", "[0.10E+1]"),
            ("[100.0,0.0]", "[1e2,0e7]"),
            ("[-1.50]", "[-15e-1]"),
            ("[0.1,\"-1\\\"2\"]", "[1e-1,\"-1\\\"2\"]"),
            ("[123456789012345.25]", "[1.2345678901234525E14]"),
            ("[5e-324]", "[0.5e-323]"),
        ] {
            assert!(form(a).is_some(), "{a}");
            assert_eq!(form(a), form(b), "{a} and {b}");
        }
    }

    proptest! {
        /// By 17 digits a double is told from all others: what was written from one is one.
        #[test]
        fn what_a_double_is_written_as_is_not_rounded(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            for literal in [format!("{number:?}"), format!("{number:e}"), format!("{number}")] {
                prop_assert!(is_written_back(literal.as_bytes(), number), "{literal}");
            }
        }

        #[test]
        fn two_literals_of_one_double_are_not_both_it(a in "[1-9]\\.[0-9]{15,25}[1-9]", last in "[1-9]") {
            let b = format!("{}{last}", &a[..a.len() - 1]);
            prop_assume!(a != b);
            let number = |text: &str| text.parse::<f64>().unwrap();
            let are_it = [&a, &b].map(|text| is_written_back(text.as_bytes(), number(text)));
            prop_assert!(number(&a) != number(&b) || are_it != [true, true]);
        }

        #[test]
        fn the_form_of_the_form_is_the_form(document in r#"[\[\]{}",:0-9a-c. e-]{0,24}"#) {
            if let Some(form) = canonical(document.as_bytes())
                && form[0] != b' '
            {
                prop_assert_eq!(canonical(&form), Some(form));
            }
        }
    }
}
