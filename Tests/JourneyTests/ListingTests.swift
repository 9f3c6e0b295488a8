import Base
import TestSupport
import Testing

/// What a folder looks like when nothing is known yet, and what its names are.
@Suite struct ListingTests {
  @Test(arguments: Traveller.all) func manyUnknownFilesCostOneRequestEach(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      var settings = OriginSettings()
      settings.latency = 0.03
      try withOrigin(settings) { origin in
        let count = 200
        for number in 0..<count { origin.add("/clips/clip\(number).mp4", size: Int64(300_000 + number)) }
        try journey.mount((0..<count).map { "\(origin.url("/clips/clip\($0).mp4"))\n" }.joined(), "-v")
        let long = try journey.succeed(["ls", "-l", journey.mountpoint])
        let sizes = long.split(separator: "\n").dropFirst().compactMap { Int64($0.split(separator: " ")[4]) }
        #expect(sizes.sorted() == (0..<Int64(count)).map { 300_000 + $0 }, "the server's log: \(journey.log)")
        _ = try journey.storedAtRest(origin, "clip0.mp4")
        let totals = origin.log.totals
        #expect(totals.requests == count, "one request each")
        #expect(Set(origin.log.entries.map(\.request.path)).count == count)
        #expect(totals.peakConnections > 1, "side by side")
        #expect(totals.connections <= 32, "over kept connections: \(totals.connections) were made")
        #expect(totals.bytesSent <= Int64(count) * 256 << 10)
        // The second time, and at the next mount, nobody is asked.
        try journey.succeed(["ls", "-l", journey.mountpoint])
        try journey.unmount()
        try journey.mount()
        #expect(try journey.succeed(["ls", "-l", journey.mountpoint]).split(separator: "\n").count == count + 1)
        #expect(origin.log.totals.requests == count)
      }
    }
  }

  /// What the list says is shown without a request. What programs read is the origin's, whatever the list says.
  @Test(arguments: Traveller.all) func sizesOfTheListAskNobody(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        let size: Int64 = 3_000_001
        let listed: [(name: String, size: Int64)] = [
          ("right", size), ("small", 1000), ("large", 40_000_000), ("small2", 1000), ("large2", 40_000_000),
          ("large3", 40_000_000),
        ]
        for file in listed { origin.add("/\(file.name)", size: size) }
        let files = listed.map { file in
          "<file name=\"d/\(file.name).mkv\"><size>\(file.size)</size><url>\(origin.url("/" + file.name))</url></file>"
        }
        try journey.mount(
          "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\(files.joined())</metalink>", "--next", "0")
        for _ in 0..<2 {
          let sizes = try journey.succeed(["stat", "-c", "%s"] + listed.map { journey.at("d/\($0.name).mkv") })
          #expect(sizes.split(separator: "\n").compactMap { Int64($0) } == listed.map(\.size))
          #expect(try journey.succeed(["ls", "-lR", journey.mountpoint]).contains("40000000"))
        }
        #expect(origin.log.totals.requests == 0)

        for name in ["right", "small", "large"] {
          try journey.succeed(["cp", journey.at("d/\(name).mkv"), journey.folder.file("copy of \(name)")])
          #expect(
            try journey.succeed(["stat", "-c", "%s", journey.folder.file("copy of \(name)")]) == "\(size)\n", "\(name)")
          try journey.succeed(["cmp", journey.folder.file("copy of \(name)"), journey.at("d/\(name).mkv")])
        }
        // Whoever has asked for the size before the open, and never asks again, reads to the real end as well.
        let read = """
          import os, sys
          for path in sys.argv[1:]:
            os.stat(path)
            file, count = os.open(path, os.O_RDONLY), 0
            while (data := os.read(file, 65536)): count += len(data)
            print(count)
          """
        #expect(
          try journey.python(read, journey.at("d/small2.mkv"), journey.at("d/large2.mkv")) == "\(size)\n\(size)\n")
        let map = """
          import mmap, os, sys
          os.stat(sys.argv[1])
          with open(sys.argv[1], "rb") as file: print(len(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:]))
          """
        #expect(try journey.python(map, journey.at("d/large3.mkv")) == "\(size)\n")
        #expect(try journey.succeed(["stat", "-c", "%s", journey.at("d/large2.mkv")]) == "\(size)\n")
      }
    }
  }

  @Test(arguments: Traveller.all) func bodiesWithoutALengthAreReadToTheirEnd(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      var settings = OriginSettings()
      settings.lineRate = 40e6  // a shaped line has small buffers: little is sent that nobody read
      try withOrigin(settings) { origin in
        let size = Int64(8 << 20) + 4321
        let faults: [(String, [OriginFault])] = [
          ("chunked.bin", [.ignoreRange(), .chunked()]), ("close.bin", [.ignoreRange(), .noContentLength]),
          ("old.bin", [.ignoreRange(), .noContentLength, .http10]),
          ("cat.bin", [.ignoreRange(), .chunked(trailers: true)]),
        ]
        for (name, fault) in faults {
          origin.add("/\(name)", size: size)
          origin.fault(fault, path: "/\(name)")
          try journey.original(name, size: size)
        }
        try journey.mount(faults.map { origin.url("/\($0.0)") + "\n" }.joined())
        for (name, _) in faults {
          let (copy, original) = (journey.folder.file("copy of \(name)"), journey.folder.file("originals/\(name)"))
          if name == "cat.bin" {
            try journey.shell(#"cat "$1" >"$2""#, journey.at(name), copy)
          } else {
            try journey.succeed(["cp", journey.at(name), copy])
          }
          try journey.succeed(["cmp", copy, original])
          try journey.wait(for: "complete", name)
          try journey.succeed(["cmp", journey.kept(name), original])
          #expect(try journey.succeed(["stat", "-c", "%s", journey.at(name)]) == "\(size)\n")
          // Once, but for looks at its head that were broken off.
          let sent = origin.log.bytesSent(of: "/\(name)")
          #expect(sent >= size && sent <= size + 2 << 20, "\(name): \(sent) bytes were sent")
        }
      }
    }
  }

  @Test(arguments: Traveller.all) func anEmptyFileIsEmpty(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.add("/empty.txt", size: 0)
        origin.add("/one.txt", size: 1)
        try journey.mount(origin.url("/empty.txt") + "\n" + origin.url("/one.txt") + "\n")
        try journey.succeed(["cp", journey.at("empty.txt"), journey.at("one.txt"), journey.folder.path])
        let sizes = ["empty.txt", "one.txt"].map { sizeOfFile(journey.folder.file($0)) }
        #expect(sizes == [0, 1])
        #expect(try journey.succeed(["stat", "-c", "%s", journey.at("empty.txt"), journey.at("one.txt")]) == "0\n1\n")
        for name in ["empty.txt", "one.txt"] {
          try journey.wait(for: "complete", name)
          try journey.succeed(["cmp", journey.kept(name), journey.folder.file(name)])
        }
      }
    }
  }

  @Test func aNameGainsItsExtensionAtTheNextMount() throws {
    try withJourney { journey in
      try withOrigin { origin in
        // By the first bytes, though the type says nothing; by Content-Disposition; by the type.
        let song = try MediaFactory.bytes(.flac)
        origin.set("/4711", OriginResource(bytes: song))
        var named = OriginResource(size: 5000, pattern: "named")
        named.disposition = #"attachment; filename="some talk.mkv""#
        origin.set("/4712", named)
        origin.set("/4713", OriginResource(size: 5000, pattern: "typed", type: "video/mp4"))
        origin.set("/4714", OriginResource(size: 5000, pattern: "given", type: "video/mp4"))
        let urls = (4711...4714).map { origin.url("/\($0)") }
        try journey.mount(urls.joined(separator: "\n") + "\n  out=given\n")
        let listed = { try journey.succeed(["ls", journey.mountpoint]) }
        #expect(try listed() == "4711\n4712\n4713\ngiven\n")
        for name in ["4711", "4712", "4713", "given"] { try journey.succeed(["cat", journey.at(name)]) }
        #expect(try listed() == "4711\n4712\n4713\ngiven\n", "a listed name never changes under a mount")
        try journey.wait(for: "complete", "4713")
        try journey.unmount()
        try journey.mount()
        #expect(try listed() == "4711.flac\n4712.mkv\n4713.mp4\ngiven\n")
        try journey.shell(#"cmp "$1/4711" "$1/4711.flac""#, journey.mountpoint)
        #expect(
          try journey.succeed(["stat", "-c", "%s", journey.at("4711")]) == "\(song.count)\n", "the old name resolves")
        #expect(try journey.probe(journey.at("4711.flac")).contains("flac"))
      }
    }
  }

  @Test func equalNamesAreNumberedAndRemembered() throws {
    try withJourney { journey in
      try withOrigin { origin in
        for folder in ["a", "b", "c"] { origin.add("/\(folder)/song.mp3", size: 1000) }
        let urls = ["a", "b", "c"].map { origin.url("/\($0)/song.mp3") + "\n" }
        let firstByte = { (name: String) in
          try journey.shell(#"head -c 8 "$1" | od -An -tu1"#, journey.at(name)).split(separator: " ").map {
            Int($0.trimmed)
          }
        }
        let right = { (folder: String) in
          Pattern.bytes(name: "/\(folder)/song.mp3", offset: 0, count: 8).map { Int($0) }
        }
        try journey.mount(urls[0] + urls[1])
        #expect(try journey.succeed(["ls", journey.mountpoint]) == "song (2).mp3\nsong.mp3\n")
        #expect(try firstByte("song.mp3") == right("a"))
        #expect(try firstByte("song (2).mp3") == right("b"))
        try journey.unmount()
        // The first went, another came, in another order: nobody changes its name.
        try journey.mount(urls[2] + urls[1])
        #expect(try firstByte("song (2).mp3") == right("b"))
        let others = try journey.succeed(["ls", journey.mountpoint]).split(separator: "\n").filter {
          $0 != "song (2).mp3"
        }
        #expect(others.count == 1)
        #expect(try firstByte(String(try #require(others.first))) == right("c"))
      }
    }
  }
}

extension Substring {
  /// Without white space at its ends.
  fileprivate var trimmed: Substring { drop { $0.isWhitespace }.prefix { !$0.isWhitespace } }
}
