//! `manifest`: bytes of the two root files. What is read is canonical: it has one text, and that is the one that was read.

use waystation_format::manifest::FileKind;
use waystation_format::{Manifest, commit_file, names};

use crate::{judge, memory};

/// Reads bytes as a manifest and as a commit file.
///
/// # Panics
/// If a manifest that is read has another text, names a file twice or one that is not of the form of its kind; if a refusal
/// names no rule; if memory goes beyond [`memory::DECODING`].
pub fn run(data: &[u8]) {
    commit(data);
    let (parsed, peak) = memory::peak(|| Manifest::parse(data));
    memory::DECODING.check(peak, data.len(), "a manifest");
    let manifest = match parsed {
        Ok(manifest) => manifest,
        Err(e) => {
            judge::within(&e, data.len());
            return judge::refusal(&e);
        }
    };
    let encoded = manifest.encode().expect("what was read can be written");
    assert!(encoded == data, "a manifest with two texts");
    judge::canonical(data, "a manifest");
    listed(&manifest);
    let files = manifest.named_files().expect("lists within the limits have positions");
    judge::ascending(files.iter().map(|file| &file.name), "names of files");
    for file in files {
        let known = match file.kind {
            FileKind::Attachment { writer, position } => names::parse_attachment(&file.name)
                .is_some_and(|(w, inc, p)| {
                    (w, p) == (writer, position) && inc == manifest.parts[w as usize].inc
                }),
            FileKind::Part { writer } => {
                names::parse_part(&file.name).is_some_and(|(w, _)| w == writer)
            }
            FileKind::RecordsPage { page } => names::parse_records_page(&file.name) == Some(page),
            FileKind::TensorsPage { page } => names::parse_tensors_page(&file.name) == Some(page),
            FileKind::Shard { writer, position } => {
                let shard = manifest.shard(writer, position).expect("a shard of the manifest");
                let inc = manifest.parts[writer as usize].inc;
                let class = shard.class;
                names::parse_shard(&file.name)
                    == Some(names::ShardName { class, writer, inc, position })
            }
        };
        assert!(known, "{} does not say that it is {:?}", file.name, file.kind);
        assert!(file.name.as_str() < names::COMMIT, "{} comes after the commit file", file.name);
    }
}

/// What ascends does, there are as many parts as writers, and what parts name can be where it is said to be.
fn listed(manifest: &Manifest) {
    let Manifest { contents, omitted, parts, records, tensors, common } = manifest;
    assert_eq!(parts.len(), common.writers as usize, "parts and writers");
    for pages in [records, tensors] {
        judge::ascending(pages.iter().map(|page| &page.first), "first keys of pages");
    }
    judge::ascending(contents.iter().map(|(component, _)| component), "components");
    for (component, roles) in contents {
        judge::ascending(roles.iter().map(|(role, _)| role.as_str()), component);
        assert!(roles.iter().all(|(_, count)| *count > 0), "{component}: none of a role");
    }
    judge::ascending(omitted.iter().map(|one| (&one.component, one.reason)), "what is omitted");
    for one in omitted {
        assert!(!one.names.is_empty(), "nothing is omitted");
        judge::ascending(&one.names, "names that are omitted");
    }
    let attachments = parts.iter().flat_map(|part| &part.attachments);
    judge::paths(attachments.map(|attachment| attachment.path.as_str()));
    parts.iter().flat_map(|part| &part.shards).for_each(judge::table);
}

fn commit(data: &[u8]) {
    match commit_file::parse(data) {
        Ok(digest) => {
            assert_eq!(&commit_file::encode(&digest)[..], data, "a commit file with two texts")
        }
        Err(e) => {
            judge::within(&e, data.len());
            judge::refusal(&e);
        }
    }
}
