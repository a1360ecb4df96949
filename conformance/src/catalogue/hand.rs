//! Checkpoints and runs put together by hand, which owe nothing to [`crate::build`]: a fault of it cannot bless itself. The texts
//! in `hand/` say bytes and expected answers; what they are is said there.

use super::Cases;
use crate::assemble::assemble;
use crate::case::{Effect, Op};

const TEXTS: [&str; 10] = [
    include_str!("../../hand/bare.txt"),
    include_str!("../../hand/small.txt"),
    include_str!("../../hand/two-writers.txt"),
    include_str!("../../hand/blocks.txt"),
    include_str!("../../hand/sub-byte.txt"),
    include_str!("../../hand/alias-and-scope.txt"),
    include_str!("../../hand/records.txt"),
    include_str!("../../hand/attachments.txt"),
    include_str!("../../hand/stream-and-cursor.txt"),
    include_str!("../../hand/run.txt"),
];

/// What a validator must find kept in each of them.
const RULES: [&str; 7] = [
    "verify.all",
    "derive.function",
    "manifest.contents",
    "part.name",
    "part.entries",
    "part.records",
    "part.writer",
];

pub(super) fn add(cases: &mut Cases) {
    for text in TEXTS {
        let made = assemble(text);
        let rules: Vec<&str> = made.said("rules").split(", ").collect();
        let (id, about) = (made.said("case"), made.said("about"));
        let case = cases.case(id, &rules, about).effect(Effect::LostCheckpoint);
        // A text without a request that is of training state asks for the latest of a run.
        let request = made.json("request");
        let case = match id.starts_with("resume/") && request.is_null() {
            true => case.op(Op::Latest),
            false => case.request(request),
        };
        case.answers_files(made.files.clone(), made.json("answer"));
        let whole = made.files.contains_key("manifest.json");
        if let Some((_, slug)) = id.split_once('/')
            && whole
        {
            cases
                .case(&format!("extended/{slug}"), &RULES, about)
                .effect(Effect::LostCheckpoint)
                .answers_files(made.files, serde_json::json!({"findings": []}));
        }
    }
}
