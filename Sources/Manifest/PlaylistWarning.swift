/// The warning for an entry that can be fetched but will not play as a file; nil when there is none.
///
/// A small text describes an HLS or DASH stream by naming thousands of pieces; as a file, the entry is that text. It is
/// recognized by the extension of the name or of a URL's path. ``ManifestReader`` does not report it.
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

/// The extension of `url`'s path; that of `video.ism/manifest` is `ism`.
private func pathExtension(_ url: String) -> String? {
  var path = url.prefix { $0 != "?" }
  if path.lowercased().hasSuffix("/manifest") { path = path.dropLast("/manifest".count) }
  return SafeName.fileExtension(String(path.suffix(while: { $0 != "/" })))
}

extension Substring {
  /// The longest suffix of which every character satisfies `predicate`.
  fileprivate func suffix(while predicate: (Character) -> Bool) -> Substring {
    guard let last = lastIndex(where: { !predicate($0) }) else { return self }
    return self[index(after: last)...]
  }
}
