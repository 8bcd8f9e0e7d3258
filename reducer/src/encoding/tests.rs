use std::collections::{BTreeMap, HashMap, HashSet};

use everfold_protocol::codec::DEPTH_MAX;
use serde::{
    Deserialize, Serializer,
    ser::{SerializeSeq, SerializeStruct},
};

use super::*;

fn unfit<T: Serialize + DeserializeOwned + 'static>(value: &T) -> Unfit {
    match encode(value) {
        Err(BodyError::Unfit { type_name, unfit }) => {
            assert_eq!(type_name, std::any::type_name::<T>());
            unfit
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn comes_back_as_it_was<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug + 'static>(value: T) {
    let bytes = encode(&value).unwrap();
    assert_eq!(bytes, codec::encode(&value).unwrap(), "watching changes nothing");
    assert_eq!(decode::<T>(&bytes).unwrap(), value);
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stats {
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<u64>,
    count: u64,
    sums: Vec<u64>,
}

#[test]
fn a_field_that_is_left_out_is_refused_whenever_it_is() {
    let skipped = Unfit::SkippedField { within: "Stats", field: "label" };
    assert_eq!(unfit(&Stats::default()), skipped);
    comes_back_as_it_was(Stats { label: Some(9), count: 5, sums: vec![7] });
    assert_eq!(unfit(&Stats::default()), skipped);
    assert_eq!(unfit(&vec![(1, Some(Stats::default()))]), skipped);
    let told = encode(&Stats::default()).unwrap_err().to_string();
    assert!(
        told.contains("Stats` cannot be reduced") && told.contains("remove `skip_serializing_if`"),
        "{told}"
    );
}

#[test]
fn other_ways_to_leave_a_field_out_are_refused() {
    #[derive(Serialize, Deserialize)]
    struct Never {
        #[serde(skip_serializing)]
        _label: u64,
        sums: Vec<u64>,
    }
    for sums in [vec![], vec![0], vec![1, 0], vec![7; 9]] {
        let unfit = unfit(&Never { _label: 3, sums });
        assert!(matches!(unfit, Unfit::Undecodable { .. } | Unfit::Changed), "{unfit:?}");
    }
    #[derive(Serialize, Deserialize)]
    enum Shape {
        Good(u8),
        Bad {
            #[serde(skip_serializing_if = "Option::is_none")]
            label: Option<u8>,
        },
        Short(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, u8),
    }
    assert!(encode(&Shape::Good(1)).is_ok());
    assert_eq!(unfit(&Shape::Bad { label: None }), Unfit::SkippedField { within: "Bad", field: "label" });
    // Nothing is said here while it is serialized; but this variant has not been seen before.
    assert!(matches!(unfit(&Shape::Short(None, 0)), Unfit::Undecodable { .. } | Unfit::Changed));
}

#[test]
fn what_needs_a_format_that_describes_itself_is_refused() {
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        One(u64),
    }
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Internal {
        One { value: u64 },
    }
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind", content = "value")]
    enum Adjacent {
        One(u64),
    }
    #[derive(Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
    }
    #[derive(Serialize, Deserialize)]
    struct Inner {
        value: u64,
    }
    assert!(matches!(unfit(&Untagged::One(1)), Unfit::Undecodable { .. }));
    assert!(matches!(unfit(&Internal::One { value: 1 }), Unfit::Undecodable { .. }));
    assert!(matches!(unfit(&Adjacent::One(1)), Unfit::Undecodable { .. }));
    assert_eq!(unfit(&Flat { inner: Inner { value: 1 } }), Unfit::UnknownLength);
}

#[test]
fn what_announces_another_length_or_is_read_otherwise_is_refused() {
    #[derive(Deserialize)]
    struct Announced(Vec<u64>);
    impl Serialize for Announced {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(3))?;
            self.0.iter().try_for_each(|element| seq.serialize_element(element))?;
            seq.end()
        }
    }
    let wrong = |written| Unfit::WrongLength { within: "a sequence", announced: 3, written };
    assert_eq!(unfit(&Announced(vec![1; 2])), wrong(2));
    assert_eq!(unfit(&Announced(vec![1; 4])), wrong(4));

    #[derive(Deserialize)]
    struct Swapped {
        first: u64,
        second: u64,
    }
    impl Serialize for Swapped {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields = serializer.serialize_struct("Swapped", 2)?;
            fields.serialize_field("second", &self.second)?;
            fields.serialize_field("first", &self.first)?;
            fields.end()
        }
    }
    assert_eq!(unfit(&Swapped { first: 1, second: 2 }), Unfit::Changed);
}

#[test]
fn what_comes_back_is_accepted_in_whatever_order_it_does() {
    comes_back_as_it_was(());
    comes_back_as_it_was((1u8, -2i64, 1u128 << 100, 'ß', "text".to_owned(), [1.5f32; 3], Some(())));
    comes_back_as_it_was(BTreeMap::from([(vec![1], Some(f64::INFINITY)), (vec![], None)]));
    let map: HashMap<String, HashSet<u64>> =
        (0..50).map(|key| (format!("{key}"), (0..key).collect())).collect();
    assert_eq!(decode::<HashMap<String, HashSet<u64>>>(&encode(&map).unwrap()).unwrap(), map);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Cached {
        value: u64,
        #[serde(skip)]
        cache: Option<u64>,
    }
    let cached = encode(&Cached { value: 1, cache: Some(2) }).unwrap();
    assert_eq!(decode::<Cached>(&cached).unwrap(), Cached { value: 1, cache: None });
}

/// One level of its own, and one for the option.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Chain {
    next: Option<Box<Chain>>,
}

impl Chain {
    fn of(links: u32) -> Self {
        (1..links).fold(Self { next: None }, |chain, _| Self { next: Some(Box::new(chain)) })
    }
}

#[test]
fn what_is_too_deep_is_refused_at_both_ends() {
    let longest = DEPTH_MAX / 2;
    // On the smallest stack that threads have unless they ask for less.
    let on_a_small_stack = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        comes_back_as_it_was(Chain::of(longest));
        assert_eq!(unfit(&Chain::of(longest + 1)), Unfit::TooDeep { limit: DEPTH_MAX });
        assert_eq!(unfit(&Chain::of(5_000)), Unfit::TooDeep { limit: DEPTH_MAX });
        let too_deep = [vec![1; longest as usize], vec![0]].concat();
        let refused = decode::<Chain>(&too_deep).unwrap_err().to_string();
        assert!(refused.contains("more than 256 levels"), "{refused}");
        assert!(decode::<Chain>(&vec![1; 1_000_000]).is_err());
    });
    on_a_small_stack.unwrap().join().unwrap();
}

#[test]
fn the_root_is_told_of_its_type_although_its_body_stays_there() {
    #[derive(Serialize, Deserialize)]
    struct Body {
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<u64>,
    }
    assert!(check(&Body { label: None }).is_err());
    assert!(check(&Body { label: Some(1) }).is_ok());
    assert!(check(&Body { label: None }).is_ok(), "what is never encoded may be what it likes");
}
