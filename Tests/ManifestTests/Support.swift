import Manifest
import TestSupport
import Testing

/// What a manifest gave.
struct Reading {
  var entries: [ManifestEntry] = []
  var problems: [ManifestProblem] = []
  var errors: [ManifestProblem] { problems.filter { $0.severity == .error } }
  /// The paths of the entries.
  var paths: [String] { entries.map { ($0.folder + [$0.name]).joined(separator: "/") } }
}

/// Reads everything of `reader`.
func readAll(_ reader: consuming ManifestReader) throws -> Reading {
  var reader = reader
  var reading = Reading()
  while let item = try reader.next() {
    switch item {
    case .entry(let entry): reading.entries.append(entry)
    case .folder: Issue.record("a folder of a server, though none was asked for")
    case .problem(let problem): reading.problems.append(problem)
    }
  }
  return reading
}

/// Reads `text`.
func read(_ text: String, name: String = "urls.txt", base: ManifestBase = .none) throws -> Reading {
  try readAll(ManifestReader(bytes: Array(text.utf8), name: name, base: base))
}

/// The entry of `options` (lines without their white space) below one URL.
func entry(_ options: String..., url: String = "https://example.com/a.mp4") throws -> ManifestEntry {
  let reading = try read(url + "\n" + options.map { "  \($0)\n" }.joined())
  #expect(reading.problems == [])
  return try #require(reading.entries.first)
}

/// The one problem with `option` below a good URL, whose entry must be there all the same.
func problem(_ option: String) throws -> ManifestProblem {
  let reading = try read("https://example.com/a.mp4\n " + option + "\n")
  #expect(reading.entries.count == 1)
  #expect(reading.problems.count == 1)
  return try #require(reading.problems.first)
}

/// What holds for every entry, whatever the list was.
func checkEntry(_ entry: ManifestEntry, _ place: Comment) {
  #expect((entry.folder + [entry.name]).allSatisfy(SafeName.isSafe), place)
  #expect(SafeName.isSafe(SafeName.numbered(entry.name, 12)), place)
  #expect(SafeName.isSafe(SafeName.appendingExtension(entry.name, "webm")), place)
  #expect(entry.folder.count <= 32 && !entry.urls.isEmpty, place)
  for url in entry.urls {
    let isClean = url.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F } && !url.contains("#")
    #expect(isClean && ["http://", "https://"].contains { url.utf8.starts(with: $0.utf8) }, place)
    _ = ResourceKey(url: url)
  }
  for header in entry.headers {
    #expect(
      !header.name.isEmpty && !(header.name + header.value).utf8.contains { $0 == 13 || $0 == 10 || $0 == 0 }, place)
  }
  if let checksum = entry.checksum { #expect(checksum.digest.count == checksum.algorithm.byteCount, place) }
}
