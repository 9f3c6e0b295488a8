/// What to say of an entry that can be fetched but will not play as a file, nil when nothing is to be said.
///
/// HLS and DASH streams are described by a small text that names thousands of pieces: as a file it is that text. Told
/// by the extension of the name or of a URL's path; the reader of manifests does not report it by itself.
package func playlistWarning(for entry: ManifestEntry) -> String? {
  let name = SafeName.fileExtension(entry.name)
  for ending in [name] + entry.urls.map(pathExtension) {
    switch ending {
    case "m3u8", "m3u":
      return "\(entry.name): an HLS stream's playlist does not play as a file; give the URL of a whole file, "
        + "or play the stream's URL directly"
    case "mpd":
      return "\(entry.name): a DASH stream's manifest does not play as a file; give the URL of a whole file, "
        + "or play the stream's URL directly"
    case "ism", "isml", "f4m":
      return "\(entry.name): a Smooth Streaming or HDS manifest does not play as a file; give the URL of a whole file"
    default:
      continue
    }
  }
  return nil
}

/// The extension that `url`'s path has; that of `video.ism/manifest` is `ism`.
private func pathExtension(_ url: String) -> String? {
  var path = url.prefix { $0 != "?" }
  if path.lowercased().hasSuffix("/manifest") { path = path.dropLast("/manifest".count) }
  return SafeName.fileExtension(String(path.suffix(while: { $0 != "/" })))
}

extension Substring {
  /// The longest end of which every character satisfies `predicate`.
  fileprivate func suffix(while predicate: (Character) -> Bool) -> Substring {
    guard let last = lastIndex(where: { !predicate($0) }) else { return self }
    return self[index(after: last)...]
  }
}
