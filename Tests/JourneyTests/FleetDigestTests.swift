import Base
import TestSupport
import Testing

/// Digests are shared: who completes a file notes them, and who reads its blocks from the store compares.
@Suite("Digests that a fleet shares", .serialized) struct FleetDigestTests {
  private static let blocks = Int((Fleet.size + (4 << 20) - 1) / (4 << 20))

  /// One node has read all files, and noted their digests. Its list has their SHA-256.
  private func withDigests(_ body: (FakeStore, Fleet) throws -> Void) throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        for name in Fleet.names {
          let sum = try Command.succeed(["sha256sum", fleet.folder.file(name)]).prefix(64)
          fleet.facts[name] = "  checksum=sha-256=\(sum)\n"
        }
        try fleet.readAll([try fleet.mountSharing()])
        let isThere = eventually(timeout: 60) { digests(store).count == Fleet.names.count }
        fleet.expect(isThere, "\(digests(store).count) files have digests")
        try body(store, fleet)
      }
    }
  }

  private func digests(_ store: FakeStore) -> [String: [String: String]] {
    store.objects.filter { $0.key.contains("/mfs1/d/") }.mapValues { object in
      let lines = String(decoding: object.body, as: UTF8.self).split(separator: "\n").dropFirst()
      return Dictionary(
        uniqueKeysWithValues: lines.map { line in
          let words = line.split(separator: "=", maxSplits: 1)
          return (String(words[0]), String(words[1]))
        })
    }
  }

  private func complete(_ member: MountedProgram) -> Bool {
    eventually(timeout: 60) { (try? member.status().totals.complete) == Fleet.names.count }
  }

  @Test("They have the checksum of each block. A block that is another one's is no part of a complete file")
  func blocksAreCompared() throws {
    try withDigests { store, fleet in
      let sums = try Set(
        Fleet.names.map { String(try Command.succeed(["sha256sum", fleet.folder.file($0)]).prefix(64)) })
      let noted = digests(store)
      #expect(Set(noted.values.map { $0["sha256"] ?? "" }) == sums)
      #expect(noted.values.allSatisfy { $0["crc32c"]?.count == 8 * Self.blocks }, "\(noted)")
      // The fourth block of one file in the place of another's, with all that its metadata say.
      let ids = noted.keys.sorted().map { String($0.suffix(32)) }
      func block(_ id: String) -> String {
        store.objects.keys.first { $0.hasSuffix("/mfs1/b/\(id)/00000004") } ?? ""
      }
      let other = try #require(store.objects[block(ids[1])])
      var meta = other.meta
      let label = try #require(meta.first { $0.value.contains(ids[1]) })
      meta[label.key] = label.value.replacing(ids[1], with: ids[0])
      let name = block(ids[0])
      store.setObject(name, other.body, meta: meta)
      fleet.facts = [:]
      let second = try fleet.mountSharing()
      try fleet.readAll([second])
      #expect(complete(second))
      #expect(second.process?.standardErrorSoFar.contains("is not what was stored") == true)
      let isMended = eventually(timeout: 60) { store.objects[name].map { !$0.etag.contains("set") } ?? false }
      #expect(isMended, "the block is \(store.objects[name]?.etag ?? "gone")")
      // They were taken for wrong too: the next node that completes the file notes them anew, this one perhaps.
      let removed = store.seen.filter { $0.method == "DELETE" && $0.target.contains("/mfs1/d/") }
      #expect(removed.contains { $0.target.contains(ids[0]) }, "\(removed.map(\.target))")
      fleet.origin.stop()
      let third = try fleet.mountSharing(["--timeout", "60"])
      try fleet.readAll([third])
      let isThere = eventually(timeout: 60) { digests(store).count == Fleet.names.count }
      fleet.expect(isThere, "\(digests(store).count) files have digests")
    }
  }

  @Test("A file whose list has no checksum is compared with the SHA-256 of another machine's list")
  func filesAreCompared() throws {
    try withDigests { store, fleet in
      // Another SHA-256, with the right code.
      let key = try #require(fleet.environment["MEDIAFS_FLEET_KEY"])
      let wrong = String(repeating: "0", count: 64)
      for (name, fields) in digests(store) {
        let (size, sums) = (fields["size"] ?? "", fields["crc32c"] ?? "")
        let id = Array(name.suffix(32))
        let bytes = stride(from: 0, to: 32, by: 2).map { "\\x\(id[$0])\(id[$0 + 1])" }.joined()
        let code = try Command.succeed([
          "bash", "-euc",
          """
          { printf 'mediafs done 1\\0'; printf "$2"; printf '%s\\0' "$3" "$4" "$5"; } |
            openssl dgst -sha256 -hmac "$1" | sed 's/.*= //'
          """, "bash", key, bytes, size, sums, wrong,
        ]).prefix(64)
        let text = "mediafs done 1\nsize=\(size)\ncrc32c=\(sums)\nsha256=\(wrong)\nmac=\(code)\n"
        store.setObject(name, Array(text.utf8))
      }
      fleet.facts = [:]
      let before = fleet.origin.log.totals.bytesSent
      let second = try fleet.mountSharing(["--continue", "always"])
      try fleet.readAll([second], [Fleet.names[0]])
      let log = { second.process?.standardErrorSoFar ?? "" }
      let isNoticed = eventually(timeout: 60) { log().contains("is not the one that the fleet's store has of it") }
      fleet.expect(isNoticed, "nothing is compared")
      // All of it comes from the origin then.
      let isComplete = eventually(timeout: 60) { (try? second.status().totals.complete) == 1 }
      fleet.expect(isComplete, "it does not become complete")
      #expect(fleet.origin.log.totals.bytesSent - before >= Fleet.size)
    }
  }
}
