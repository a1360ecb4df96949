//! Chapter 18.2: mixtures and window shuffles.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::here;
use super::held::{Wrong, bent, recipe, wrong_forms};
use super::items::{bare, canary, identity, leaf, line, offering, restored, root, train, wrap};
use super::orders::shuffle;
use super::vectors;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    mixtures(cases);
    windows(cases);
    nested(cases);
    mixture_forms(cases);
    window_forms(cases);
}

/// A mixture by the deficit rule.
pub(super) fn mixture(children: &[Value], weights: &[u64], taken: &[u64], end: &str) -> Value {
    json!({"children": children, "kind": "mixture",
        "selection": {"algorithm": "deficit", "end": end, "taken": taken, "weights": weights}})
}

/// Items of children: which, and their own.
fn of(items: &[(u64, u64)]) -> Vec<Vec<u64>> {
    items.iter().map(|&(child, ordinal)| vec![child, ordinal]).collect()
}

/// The sequences were worked out by hand from the rule.
fn mixtures(cases: &mut Cases) {
    let three =
        mixture(&[line(100, 3), line(100, 5), line(100, 0)], &[5, 3, 1], &[3, 1, 0], "first");
    let two = |end| mixture(&[line(4, 2), line(6, 1)], &[1, 2], &[2, 1], end);
    // Exactly, child 1 is ahead by one; products of 85 bits that are rounded to 53, or cut to 64, say child 0.
    let (width, apart) = ((1_u64 << 32) - 1, 1_u64 << 19);
    let total = apart * (2 * width - 1) - 2;
    let (more, less) = (u64::midpoint(total, apart), (total - apart) / 2);
    let close = mixture(&[line(9, 0), line(9, 0)], &[width, width - 1], &[more, less], "first");
    let rows: Vec<(&str, &str, Value, Vec<Vec<u64>>)> = vec![
        (
            "three",
            "A mixture of three in the proportion 5 to 3 to 1, after four items.",
            three,
            of(&[(1, 5), (2, 0), (0, 3), (1, 6), (0, 4), (0, 5), (1, 7), (0, 6), (2, 1), (0, 7)]),
        ),
        (
            "ends-first",
            "A mixture that ends with the first of its children.",
            two("first"),
            of(&[(1, 1), (1, 2), (1, 3), (1, 4), (0, 2), (1, 5)]),
        ),
        (
            "ends-all",
            "A mixture that goes on until all of its children have ended.",
            two("all"),
            of(&[(1, 1), (1, 2), (1, 3), (1, 4), (0, 2), (1, 5), (0, 3)]),
        ),
        (
            "ended-first",
            "A child of a mixture has ended, and with it the mixture.",
            mixture(&[line(4, 4), line(6, 1)], &[1, 2], &[4, 1], "first"),
            vec![],
        ),
        (
            "tie",
            "Two children are as far behind: it is the first one's turn.",
            mixture(&[line(4, 0), line(4, 0)], &[1, 1], &[7, 7], "first"),
            of(&[(0, 0), (1, 0), (0, 1), (1, 1)]),
        ),
        (
            "exact-products",
            "A mixture whose deficits differ by one in products of 85 bits.",
            close,
            of(&[(1, 0)]),
        ),
        (
            "one",
            "A mixture of one child, whose items are lists all the same.",
            mixture(&[line(4, 2)], &[1], &[0], "all"),
            of(&[(0, 2), (0, 3)]),
        ),
    ];
    for (slug, what, node, items) in rows {
        restored(
            cases,
            (&format!("mixture-{slug}"), &["cursor.canary", "cursor.form"]),
            what,
            &root(&node, 4, &items),
        );
    }
}

fn window(
    anchor: Value,
    order: Value,
    (index, replay): (u64, u64),
    size: u64,
    reverse: bool,
) -> Value {
    json!({"anchor": anchor, "index": index, "kind": "window-shuffle", "order": order,
        "replay": replay, "reverse": reverse, "window": size})
}

/// Grain's order, within windows.
fn grain(seed: u64) -> Value {
    let mut order = shuffle(1, seed, "seed+epoch", 4);
    order.as_object_mut().map(|members| members.remove("n"));
    order
}

fn windows(cases: &mut Cases) {
    let gave = |direction: &str, n: u64| {
        vectors::order("grain.window_shuffle", &json!({"direction": direction, "n": n}))
    };
    let forward = gave("forward", 20);
    let backward = gave("backward", 25);
    let node = |n, position, at, reverse| window(line(n, position), grain(7), at, 10, reverse);
    let rows: Vec<(&str, &str, Value, Vec<u64>)> = vec![
        ("grain", "Grain's window shuffle.", node(20, 0, (0, 0), false), forward.clone()),
        (
            "grain-reverse",
            "Grain's window shuffle from the back.",
            node(25, 0, (0, 0), true),
            backward.clone(),
        ),
        (
            "replay",
            "Six items of a window are given already.",
            node(20, 0, (0, 6), false),
            forward[6..].to_vec(),
        ),
        (
            "second",
            "The second window, of which two items are given; the child stands at its beginning.",
            node(25, 10, (1, 2), true),
            backward[12..].to_vec(),
        ),
        (
            "given",
            "All items of a window are given: the next item is the next window's.",
            node(20, 0, (0, 10), false),
            forward[10..].to_vec(),
        ),
        (
            "last",
            "The last window has three items of ten, of which one is given.",
            window(line(3, 0), grain(42), (0, 1), 10, true),
            vec![1, 0],
        ),
        (
            "ended",
            "The child has nothing for a window, and so nothing comes.",
            window(line(20, 20), grain(7), (2, 0), 10, false),
            vec![],
        ),
        (
            "largest-index",
            "A window whose number is 2^53 - 1, and the one after it.",
            window(
                leaf(9, identity(9), 0, wrap(), 1),
                json!({"algorithm": "identity"}),
                ((1 << 53) - 1, 1),
                2,
                false,
            ),
            vec![2, 3, 4],
        ),
    ];
    for (slug, what, node, items) in rows {
        restored(
            cases,
            (&format!("window-{slug}"), &["cursor.canary", "cursor.replay"]),
            what,
            &root(&node, 7, &bare(&items)),
        );
    }
    let short = train(root(&window(line(3, 0), grain(42), (0, 1), 10, true), 7, &bare(&[1, 0])));
    let held = recipe(std::slice::from_ref(&short));
    cases
        .case(
            "resume/window-replay-beyond-last",
            &["cursor.replay"],
            "Four items are given of a last window that has three, though windows have ten.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(offering(here(), &short).request())
        .rejects_recipe(
            &held,
            &bent(&held, &short, "/value/replay", &json!(4)),
            &[Code::BadPosition],
        );
}

fn nested(cases: &mut Cases) {
    let inner = mixture(&[line(9, 1), line(9, 2)], &[1, 1], &[0, 0], "first");
    restored(
        cases,
        ("nested-mixtures", &["cursor.canary", "cursor.form"]),
        "A mixture of a mixture and a leaf: items of three and of two numbers.",
        &root(
            &mixture(&[inner.clone(), line(9, 0)], &[1, 1], &[0, 0], "first"),
            0,
            &[vec![0, 0, 1], vec![1, 0], vec![0, 1, 2], vec![1, 1], vec![0, 0, 2]],
        ),
    );
    restored(
        cases,
        ("nested-window", &["cursor.canary", "cursor.form"]),
        "A window shuffle over a mixture, in reverse.",
        &root(
            &window(inner, json!({"algorithm": "identity"}), (0, 0), 3, true),
            0,
            &of(&[(0, 2), (1, 2), (0, 1), (1, 4), (0, 3), (1, 3)]),
        ),
    );
    let deep = |nodes: usize| {
        let mut node = line(9, 0);
        let mut items = vec![vec![0], vec![1]];
        for _ in 1..nodes {
            node = mixture(&[node], &[1], &[0], "first");
            items = items.into_iter().map(|item| [vec![0], item].concat()).collect();
        }
        root(&node, 0, &items)
    };
    restored(
        cases,
        ("nested-8", &["cursor.form", "limit.value"]),
        "A cursor of eight nodes one over another.",
        &deep(8),
    );
    wrong_forms(
        cases,
        &train(deep(8)),
        &[(
            "cursor-depth-9",
            &["cursor.form", "limit.value"],
            "A cursor of nine nodes one over another.",
            "/value",
            deep(9),
            Code::Limit,
        )],
    );
}

fn mixture_forms(cases: &mut Cases) {
    use Code::BadMember;
    let form: &[&str] = &["cursor.form"];
    let node = mixture(&[line(9, 1), line(9, 2)], &[1, 1], &[0, 0], "first");
    let wrong = |slug, fault, pointer, value| (slug, form, fault, pointer, value, BadMember);
    let table: Vec<Wrong<'_>> = vec![
        wrong(
            "mixture-weight-zero",
            "A child has the weight 0.",
            "/value/selection/weights/1",
            json!(0),
        ),
        wrong(
            "mixture-weight-2-32",
            "A child has the weight 2^32.",
            "/value/selection/weights/1",
            json!(1_u64 << 32),
        ),
        wrong(
            "mixture-weights-short",
            "There is a weight less than there are children.",
            "/value/selection/weights",
            json!([1]),
        ),
        wrong(
            "mixture-taken-long",
            "What was taken is said of three children of two.",
            "/value/selection/taken",
            json!([0, 0, 0]),
        ),
        wrong(
            "mixture-end-other",
            "A mixture ends in a way that there is not.",
            "/value/selection/end",
            json!("any"),
        ),
        wrong(
            "mixture-selection-member",
            "A selection by deficit has a member more.",
            "/value/selection/seed",
            json!(1),
        ),
        wrong("mixture-no-children", "A mixture has no children.", "/value/children", json!([])),
        wrong(
            "mixture-1025-children",
            "A mixture has 1025 children.",
            "/value/children",
            json!(vec![line(9, 1); 1025]),
        ),
        wrong(
            "mixture-child-consumed",
            "A child of a mixture has `consumed`, which stands at the root.",
            "/value/children/0/consumed",
            json!(1),
        ),
        wrong(
            "mixture-child-next",
            "A child of a mixture has a canary of its own.",
            "/value/children/0/next",
            canary(&bare(&[1])),
        ),
        wrong(
            "mixture-child-no-node",
            "A child of a mixture is no node.",
            "/value/children/0",
            json!(7),
        ),
        (
            "mixture-child-position",
            &["cursor.position"],
            "A child of a mixture stands beyond its epoch.",
            "/value/children/1/position",
            json!(10),
            Code::BadPosition,
        ),
    ];
    wrong_forms(cases, &train(root(&node, 0, &of(&[(0, 1), (1, 2), (0, 2), (1, 3)]))), &table);
}

fn window_forms(cases: &mut Cases) {
    use Code::BadMember;
    let form: &[&str] = &["cursor.form"];
    let order: &[&str] = &["order.form"];
    let node = window(line(20, 0), grain(7), (0, 6), 10, false);
    let items = vectors::order("grain.window_shuffle", &json!({"direction": "forward", "n": 20}));
    let table: Vec<Wrong<'_>> = vec![
        (
            "window-replay-beyond",
            &["cursor.replay"],
            "More items of a window are given than it has.",
            "/value/replay",
            json!(11),
            Code::BadPosition,
        ),
        ("window-zero", form, "A window has no items.", "/value/window", json!(0), BadMember),
        ("window-reverse-number", form, "`reverse` is 0.", "/value/reverse", json!(0), BadMember),
        (
            "window-without-index",
            form,
            "A window has no number.",
            "/value/index",
            Value::Null,
            BadMember,
        ),
        (
            "window-child",
            form,
            "A window shuffle that is replayed has a `child`.",
            "/value/child",
            line(20, 10),
            BadMember,
        ),
        (
            "window-order-n",
            order,
            "The order of windows says how long they are.",
            "/value/order/n",
            json!(10),
            BadMember,
        ),
        (
            "window-order-explicit",
            order,
            "The order of windows is written out.",
            "/value/order",
            json!({"algorithm": "explicit", "ordinals": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}),
            BadMember,
        ),
        (
            "window-buffer-and-anchor",
            form,
            "A window shuffle has a buffer and an anchor.",
            "/value/buffer",
            json!([1]),
            BadMember,
        ),
    ];
    wrong_forms(cases, &train(root(&node, 6, &bare(&items[6..]))), &table);
}
