import Base
import TestSupport
import Testing

/// Limits that change under a live mount.
@Suite struct SettingTests {
  @Test func settingsHoldAndAreTold() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try journey.mount("http://127.0.0.1:1/a.bin\n", "--limit-rate", "5M")
        let before = try journey.mediafs("set").output
        #expect(before.contains("limit-rate") && before.contains("option") && before.contains("default"), "\(before)")
        let set = try journey.mediafs("set", journey.mountpoint, "limit-rate=none", "max-connections=3", "max-size=1G")
        #expect(set.status == 0 && set.output.contains("none") && set.output.components("set") == 3, "\(set)")
        let host = try journey.mediafs("set", "--host", "http://127.0.0.1:1", "limit-rate=1M")
        #expect(host.status == 0 && host.output.contains("set for http://127.0.0.1:1"), "\(host)")
        let status = try journey.mediafs("status").output
        #expect(
          status.contains("--max-size 1.00 GiB (set)") && status.contains("--max-connections 3 (set)"), "\(status)")
        #expect(status.contains("--limit-rate 1.00 MiB/s (set for http://127.0.0.1:1)"), "\(status)")
        try journey.succeed([try Programs.path("mediafs"), "set", "--host", "http://other.example", "limit-rate=2M"])
        let file = try journey.mediafs("status", journey.at("a.bin")).output
        let limits = file.split(separator: "\n").first { $0.contains("limits: ") }.map { String($0) } ?? ""
        #expect(limits.contains("--limit-rate 1.00 MiB/s (set for http://127.0.0.1:1)"), "\(file)")
        #expect(limits.contains("--max-size 1.00 GiB (set)") && limits.contains("--max-connections 3 (set)"), "\(file)")
        #expect(!limits.contains("other.example"), "\(file)")
        try journey.succeed([
          try Programs.path("mediafs"), "set", "--host", "http://other.example", "limit-rate=default",
        ])
        #expect(try journey.mediafs("metrics").output.contains("_limit_bytes 1073741824\n"))
        try journey.unmount()
        try journey.mount(nil, "--limit-rate", "5M")
        let after = try journey.mediafs("set").output
        #expect(after == host.output)
        #expect(try journey.mediafs("set", "limit-rate=default").output.contains("option"))
        #expect(try journey.mediafs("set", "--host", "127.0.0.1:1", "limit-rate=default").status == 0)
      }
    }
  }

  @Test func whatIsWrongIsRefused() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try journey.mount("http://127.0.0.1:1/a.bin\n")
        let before = try journey.mediafs("set").output
        for (arguments, status, message) in [
          (["limit-rat=1M"], 1, "these can be: limit-rate, max-connections, max-size"),
          (["limit-rate=fast", "max-connections=2"], 1, "a size above 0"), (["max-connections=0"], 1, "from 1 to 1024"),
          (["max-size=none"], 1, "a size"), (["limit-rate"], 1, "is not at or below a mount"),
          (["limit-rate="], 2, "NAME=VALUE"),
          (["--host", "a/b", "limit-rate=1M"], 1, "no host"), (["--host", "a", "max-size=1M"], 1, "for a host"),
          (["--host", "a"], 2, "--host"), (["limit-rate=1M", "limit-rate=2M"], 2, "twice"),
        ] as [([String], Int32, String)] {
          let result = try journey.run([try Programs.path("mediafs"), "set"] + arguments)
          #expect(result.status == status && result.errors.contains(message), "\(arguments): \(result)")
        }
        #expect(try journey.mediafs("set").output == before)
      }
    }
  }

  /// One origin sends ranges, the other whole bodies only.
  @Test(arguments: [false, true])
  func aRateHoldsUnderADownload(whole: Bool) throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try withOrigin { origin in
          origin.add("/a.bin", size: 256 << 20)
          if whole { origin.fault(.ignoreRange(), path: "/a.bin") }
          try journey.mount(origin.url("/a.bin") + "\n", "--continue", "never", "--limit-rate", "20M")
          _ = try journey.mediafs("fetch", journey.at("a.bin"))
          try journey.wait(forStored: 4 << 20, "a.bin")
          let host = whole ? ["--host", origin.url()] : []
          let set = try journey.run([try Programs.path("mediafs"), "set"] + host + ["limit-rate=256K"])
          #expect(set.status == 0, "\(set)")
          // What is in the sockets comes first. 20 MiB/s would bring 40 MiB, up to the end of the file.
          var before: Int64 = 0
          try waitUntil(timeout: 60, interval: 0, "the rate to hold") {
            before = try journey.status().file("a.bin").stored
            sleep(seconds: 2)
            return try journey.status().file("a.bin").stored - before < 3 << 20
          }
          #expect(before < 200 << 20)
          let more = try journey.run(
            [try Programs.path("mediafs"), "set"] + host + ["limit-rate=\(whole ? "default" : "none")"])
          #expect(more.status == 0)
          try journey.wait(forStored: before + (24 << 20), "a.bin")
        }
      }
    }
  }
}

extension String {
  /// How many lines end with that word.
  fileprivate func components(_ word: String) -> Int { split(separator: "\n").count { $0.hasSuffix(" " + word) } }
}
