//! `inspect`: what a checkpoint holds, from metadata alone but for the tensors that records of
//! resume state name.

mod share;
mod state;
mod summary;

use serde_json::{Value, json};
use waystation_format::{Alias, Code, Entry, Error, Identity, Result, Tensor};
use waystation_reader::{Checkpoint, Marks, Progress};

use super::{Context, open_checkpoint};
use crate::args::Inspect;
use crate::output;

pub(super) fn run(args: &Inspect, context: &Context) -> Result<u8> {
    let checkpoint = open_checkpoint(&args.checkpoint, context)?;
    let marks = Marks::of(&**checkpoint.store())?;
    let asked = state::Asked::of(args, context.bars.wish())?;
    if context.json {
        as_object(&checkpoint, &marks, args, &asked, context)
    } else {
        as_text(&checkpoint, &marks, args, &asked, context)
    }
}

fn as_text(
    checkpoint: &Checkpoint,
    marks: &Marks,
    args: &Inspect,
    asked: &state::Asked,
    context: &Context,
) -> Result<u8> {
    let manifest = checkpoint.manifest();
    let common = &manifest.common;
    let topology: Vec<String> =
        common.topology.0.iter().map(|(axis, size)| format!("{axis}={size}")).collect();
    let files = manifest.named_files()?;
    let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    output::line(&format!("run         {}", common.run))?;
    output::line(&format!("step        {}", common.step))?;
    output::line(&format!(
        "attempt     {} (timeline {})",
        common.attempt, common.attempt.timeline
    ))?;
    output::line(&format!("digest      {}", checkpoint.digest()))?;
    output::line(&format!(
        "parent      {}",
        common.parent.map_or_else(|| "none".to_owned(), |p| p.to_string())
    ))?;
    output::line(&format!("version     {}", version(checkpoint)))?;
    output::line(&format!(
        "topology    {}",
        if topology.is_empty() { "none".into() } else { topology.join(" ") }
    ))?;
    output::line(&format!("writers     {}", common.writers))?;
    output::line(&format!("blocks      {} bytes", common.block_bytes))?;
    output::line(&format!(
        "files       {} named, {}",
        files.len().saturating_add(2),
        output::bytes(bytes)
    ))?;
    for (component, roles) in &manifest.contents {
        let counts: Vec<String> =
            roles.iter().map(|(role, count)| format!("{count} {}", role.as_str())).collect();
        output::line(&format!("contents    {component}: {}", counts.join(", ")))?;
    }
    for omitted in &manifest.omitted {
        output::line(&format!(
            "omitted     {}: {} parameters ({})",
            omitted.component,
            omitted.names.len(),
            omitted.reason.as_str()
        ))?;
    }
    for attachment in checkpoint.attachments() {
        output::line(&format!(
            "attachment  {} ({})",
            attachment.path,
            output::bytes(attachment.entry.bytes)
        ))?;
    }
    if let Some(reason) = &marks.rejected {
        output::line(&format!("REJECTED    {reason}"))?;
    }
    for pin in &marks.pins {
        output::line(&format!("pin         {pin}"))?;
    }
    if args.tensors {
        for entry in checkpoint.entries() {
            stop_if_asked(context)?;
            output::line(&entry_text(&*entry?))?;
        }
    }
    let refused = args.state && state::as_text(checkpoint, asked)?;
    Ok(u8::from(refused))
}

/// Lists may be long.
fn stop_if_asked(context: &Context) -> Result<()> {
    if context.bars.cancelled() {
        return Err(Error::new(Code::Interrupted, "stopped before the end of the list"));
    }
    Ok(())
}

fn entry_text(entry: &Entry) -> String {
    match entry {
        Entry::Tensor(tensor) => {
            let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
            format!(
                "tensor      {}  {} [{}]  {} chunks",
                identity_text(&tensor.identity),
                tensor.dtype.as_str(),
                shape.join(","),
                tensor.chunks.len()
            )
        }
        Entry::Alias(alias) => {
            format!(
                "alias       {} = {}",
                identity_text(&alias.identity()),
                identity_text(&alias.of)
            )
        }
    }
}

/// An identity for people: what says nothing is left out.
fn identity_text(identity: &Identity) -> String {
    let mut text = format!("{} {}", identity.role.as_str(), identity.name);
    if identity.component != "main" {
        text = format!("{}/{text}", identity.component);
    }
    for (sign, member) in [(":", &identity.slot), ("@", &identity.owner)] {
        if !member.is_empty() {
            text.push_str(&format!(" {sign}{member}"));
        }
    }
    for (axis, index) in &identity.scope {
        text.push_str(&format!(" {axis}={index}"));
    }
    text
}

fn as_object(
    checkpoint: &Checkpoint,
    marks: &Marks,
    args: &Inspect,
    asked: &state::Asked,
    context: &Context,
) -> Result<u8> {
    let manifest = checkpoint.manifest();
    let common = &manifest.common;
    let contents: Vec<Value> = manifest
        .contents
        .iter()
        .map(|(component, roles)| {
            let roles: Vec<Value> =
                roles.iter().map(|(role, count)| json!([role.as_str(), count])).collect();
            json!([component, roles])
        })
        .collect();
    let attachments: Vec<Value> = checkpoint
        .attachments()
        .map(|a| json!({ "path": a.path, "bytes": a.entry.bytes, "sha256": a.entry.sha256.to_string(), "file": a.file }))
        .collect();
    let files: Vec<Value> = manifest
        .named_files()?
        .iter()
        .map(|f| json!({ "name": f.name, "bytes": f.bytes }))
        .collect();
    let mut object = json!({
        "run": common.run, "step": common.step, "attempt": common.attempt.to_string(),
        "timeline": common.attempt.timeline, "digest": checkpoint.digest().to_string(),
        "parent": common.parent.map(|p| p.to_string()), "version": version(checkpoint),
        "topology": common.topology.0, "writers": common.writers, "block_bytes": common.block_bytes,
        "features": { "optional": common.features.optional, "required": common.features.required },
        "contents": contents, "attachments": attachments, "files": files,
        "rejected": marks.rejected, "pins": marks.pins,
    });
    let mut refused = false;
    if let Some(map) = object.as_object_mut() {
        if args.tensors {
            let (mut tensors, mut aliases) = (Vec::new(), Vec::new());
            for entry in checkpoint.entries() {
                stop_if_asked(context)?;
                match &*entry? {
                    Entry::Tensor(tensor) => tensors.push(tensor_json(tensor)),
                    Entry::Alias(alias) => aliases.push(alias_json(alias)),
                }
            }
            map.insert("tensors".into(), tensors.into());
            map.insert("aliases".into(), aliases.into());
        }
        if args.state {
            let members;
            (members, refused) = state::as_members(checkpoint, asked)?;
            for (name, member) in members {
                map.insert(name.into(), member);
            }
        }
    }
    output::object(&object)?;
    Ok(u8::from(refused))
}

fn tensor_json(tensor: &Tensor) -> Value {
    let mut object = identity_json(&tensor.identity);
    if let Some(map) = object.as_object_mut() {
        map.insert("dtype".into(), json!(tensor.dtype.as_str()));
        map.insert("shape".into(), json!(tensor.shape.to_vec()));
        map.insert("chunks".into(), json!(tensor.chunks.len()));
        if let Some(valid) = &tensor.valid {
            map.insert("valid".into(), json!(valid.to_vec()));
        }
        if let Some(block) = tensor.block {
            map.insert("block".into(), json!(block));
        }
    }
    object
}

fn alias_json(alias: &Alias) -> Value {
    let mut object = identity_json(&alias.identity());
    if let Some(map) = object.as_object_mut() {
        map.insert("of".into(), identity_json(&alias.of));
    }
    object
}

fn identity_json(identity: &Identity) -> Value {
    json!({
        "component": identity.component, "role": identity.role.as_str(), "name": identity.name,
        "slot": identity.slot, "owner": identity.owner, "scope": identity.scope,
    })
}

fn version(checkpoint: &Checkpoint) -> String {
    checkpoint.manifest().common.version.to_string()
}
