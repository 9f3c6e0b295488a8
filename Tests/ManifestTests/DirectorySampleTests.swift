import Base
import Manifest
import Testing

/// What real servers wrote of one folder: every name, every URL, and sizes and dates only where they are exact.
@Suite("Listings of real servers")
struct DirectorySampleTests {
  @Test(arguments: DirectorySample.all) func everyNameIsRead(_ sample: DirectorySample) throws {
    let directory = readDirectory(try sample.bytes(), mediaType: sample.mediaType)
    #expect(directory.fault == nil && directory.kind == sample.kind)
    var wanted = Set(DirectorySample.files.map(\.name) + ["Season 1/"])
    if sample.hasHidden { wanted.insert(".hidden") }
    let names = directory.names.filter { !$0.hasPrefix("bad") }
    #expect(Set(names) == wanted && names.count == wanted.count)
    #expect(directory.names.count - names.count == (sample.hasBadBytes ? 1 : 0))
    #expect(directory.problems.allSatisfy { $0.isUsual || $0.kind == .unknownBytes })
    #expect(directory.count(.unknownBytes) == (sample.file == "nginx.json" || sample.file == "nginx.xml" ? 1 : 0))
  }

  @Test(arguments: DirectorySample.all) func sizesAndDatesAreExactOrNone(_ sample: DirectorySample) throws {
    let directory = readDirectory(try sample.bytes(), mediaType: sample.mediaType)
    for (name, size) in DirectorySample.files {
      let entry = try #require(directory[name])
      let wantedSize: Int64? =
        switch sample.sizes {
        case .all: size
        // nginx writes up to 9999 bytes in full, Apache up to 972.
        case .below1000: size < 973 || size < 9999 && sample.file.hasPrefix("nginx") ? size : nil
        case .minutes, .none: nil
        }
      #expect(entry.size == wantedSize && !entry.isFolder, "\(name)")
      let date = DirectorySample.date(size: size)
      let wantedDate: Int64? =
        switch sample.dates {
        case .all, .below1000: date
        case .minutes: date - date % 60
        case .none: nil
        }
      #expect(entry.modified == wantedDate, "\(name)")
      #expect(entry.isModifiedExact == (sample.dates == .all && sample.file != "lighttpd.html"), "\(name)")
    }
    let folder = try #require(directory["Season 1"])
    #expect(folder.isFolder && folder.size == nil)
    #expect(folder.modified == (sample.dates == .none ? nil : DirectorySample.folderDate))
  }

  /// The URL is what the server takes: the name's own bytes, escaped once.
  @Test(arguments: DirectorySample.all) func everyURLIsBelowTheListing(_ sample: DirectorySample) throws {
    let url = "https://user:word@example.com:8443/films/"
    let directory = readDirectory(try sample.bytes(), url: url, mediaType: sample.mediaType)
    #expect(directory.entries.count >= DirectorySample.files.count + 1)
    for entry in directory.entries {
      #expect(entry.url.hasPrefix(url) && entry.url.hasSuffix("/") == entry.isFolder)
      #expect(!entry.url.dropFirst(url.count).dropLast().contains("/") && !entry.url.contains("#"))
    }
    #expect(directory["Season 1"]?.url == url + "Season%201/")
    #expect(directory["100%25 done.txt"]?.url == url + "100%2525%20done.txt")
    #expect(directory["what? #1.mp3"]?.url.lowercased() == url + "what%3f%20%231.mp3")
  }

  /// Pieces of any length give the same.
  @Test(arguments: DirectorySample.all) func piecesMakeNoDifference(_ sample: DirectorySample) throws {
    let bytes = try sample.bytes()
    let whole = readDirectory(bytes, mediaType: sample.mediaType)
    for piece in [1, 7, 100] {
      let directory = readDirectory(bytes, mediaType: sample.mediaType, piece: piece)
      #expect(directory.entries == whole.entries && directory.fault == nil, "pieces of \(piece)")
    }
  }

  /// A server that says nothing of the type, or the wrong thing.
  @Test(arguments: DirectorySample.all) func theFirstBytesTellTheForm(_ sample: DirectorySample) throws {
    let bytes = try sample.bytes()
    let whole = readDirectory(bytes, mediaType: sample.mediaType)
    for type in [nil, "text/plain", "application/octet-stream"] {
      for piece in [1, 4096] {
        #expect(readDirectory(bytes, mediaType: type, piece: piece).entries == whole.entries)
      }
    }
  }

  /// Of a listing that ends early, no cut is taken for the whole.
  @Test(arguments: DirectorySample.all) func noCutIsTakenForTheWhole(_ sample: DirectorySample) throws {
    let bytes = try sample.bytes()
    let whole = readDirectory(bytes, mediaType: sample.mediaType)
    for count in stride(from: 0, to: bytes.count, by: max(1, bytes.count / 400)) {
      let directory = readDirectory(Array(bytes[..<count]), mediaType: sample.mediaType)
      #expect(directory.fault != nil || directory.entries == whole.entries, "\(count) bytes")
    }
  }
}
