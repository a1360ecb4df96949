//! Canonical JSON of values that the suite made (chapter 2).

use serde_json::Value;

/// The one text of a value: members sorted, no white space, the shortest escapes.
#[must_use]
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let inner: Vec<String> = values.iter().map(canonical).collect();
            format!("[{}]", inner.join(","))
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            let inner: Vec<String> = sorted
                .iter()
                .map(|(name, value)| format!("{}:{}", string(name), canonical(value)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::String(text) => string(text),
        other => other.to_string(),
    }
}

/// serde_json writes strings in the form that RFC 8785 wants.
fn string(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_and_escapes_short() {
        let value = json!({"b": [1, "\u{7}\n\u{1f}\"\\/é"], "a": null, "B": {}});
        let want = r#"{"B":{},"a":null,"b":[1,"\u0007\n\u001f\"\\/é"]}"#;
        assert_eq!(canonical(&value), want);
    }
}
