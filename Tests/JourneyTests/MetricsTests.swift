import Base
import Glibc
import TestSupport
import Testing

/// A mount's numbers and events, as the tools read them that people have.
@Suite struct MetricsTests {
  /// The value of a series; nil if it is not there.
  private func value(_ series: String, in text: String) -> Double? {
    text.split(separator: "\n").first { $0.hasPrefix(series + " ") }.flatMap { Double($0.dropFirst(series.count + 1)) }
  }

  @Test func prometheusReadsTheNumbersAndTheyOutliveAServer() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let size = Int64(3 << 20)
        for name in ["secret-name.bin", "b.bin"] { origin.add("/\(name)", size: size) }
        let file = journey.folder.file("mediafs.prom")
        try journey.list(["secret-name.bin", "b.bin"].map { origin.url("/\($0)") + "?token=s3cret\n" }.joined())
        let words = try journey.mountCommand(["--metrics-file", file, "--continue", "never"])
        try journey.succeed(words)
        // Written right after the start.
        #expect(eventually { readText(file).contains("mediafs_build_info") })
        try journey.python(reader, journey.at("b.bin"), "100000:200000")
        #expect(try journey.mediafs("fetch", "--wait", journey.at("secret-name.bin")).status == 0)
        try journey.succeed(["cmp", journey.at("secret-name.bin"), try journey.original("secret-name.bin", size: size)])

        let text = try journey.mediafs("metrics", journey.mountpoint).output
        let checked = try journey.run(["promtool", "check", "metrics"], input: Array(text.utf8))
        #expect(checked.succeeded && checked.output.isEmpty && checked.errors.isEmpty, "\(checked)\n\(text)")
        #expect(value("mediafs_cache_bytes{state=\"complete\"}", in: text) == Double(size))
        #expect(value("mediafs_cache_files{state=\"complete\"}", in: text) == 1)
        #expect(value("mediafs_completed_files_total", in: text) == 1)
        #expect(value("mediafs_list_files", in: text) == 2)
        let read = ["store", "origin", "memory", "copy"].compactMap {
          value("mediafs_read_bytes_total{source=\"\($0)\",class=\"reader\"}", in: text)
        }
        #expect(read.count == 4 && read.reduce(0, +) >= 200_000, "\(text)")
        #expect(value("mediafs_origin_first_byte_seconds_count", in: text) ?? 0 > 0)
        #expect(value("mediafs_duplicate_bytes_total", in: text) == 0)
        for secret in ["secret", "127.0.0.1", "b.bin", "http"] { #expect(!text.contains(secret), "\(text)") }

        // A server that was killed: its successor counts from 0, and the file is the successor's.
        let status = try journey.status()
        let before = try #require(value("mediafs_start_time_seconds", in: text))
        sleep(seconds: 1.1)
        kill(try #require(status.pid), SIGKILL)
        #expect(eventually { self.value("mediafs_server_replaced", in: readText(file)) == 1 })
        let next = try journey.mediafs("metrics", journey.mountpoint).output
        #expect(value("mediafs_completed_files_total", in: next) == 0)
        #expect(value("mediafs_start_time_seconds", in: next) ?? 0 > before)
        try journey.unmount()
        #expect(eventually { access(file, F_OK) != 0 })
        #expect(try journey.mediafs("metrics", journey.mountpoint).errors.contains("not mounted"))
        // A file in the mount could never be written.
        let inside = try journey.run(try journey.mountCommand(["--metrics-file", journey.at("m.prom")]))
        #expect(inside.status == 1 && inside.errors.contains("inside the mount"), "\(inside)")
      }
    }
  }

  @Test func twoClientsHearWhatHappensOverAServersDeath() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/a.bin", size: 3 << 20)
        try journey.mount(["a.bin", "gone.bin"].map { origin.url("/\($0)") + "\n" }.joined())
        let program = try Programs.path("mediafs")
        let json = try journey.start([program, "events", "--json", journey.mountpoint])
        let text = try journey.start([program, "events", journey.mountpoint])
        defer { for process in [json, text] { process.terminate(grace: 1) } }
        func complete() throws {
          #expect(try journey.mediafs("clear", journey.at("a.bin")).status == 0)
          #expect(try journey.mediafs("fetch", "--wait", journey.at("a.bin")).status == 0)
        }
        // The commands are there once they hear something.
        try waitUntil(timeout: 60, interval: 0.2, "events") {
          try complete()
          return json.standardOutputSoFar.contains("complete") && text.standardOutputSoFar.contains("complete")
        }
        #expect(try journey.mediafs("fetch", "--wait", journey.at("gone.bin")).status == 1)
        #expect(eventually { json.standardOutputSoFar.contains(#""event":"failing""#) })
        #expect(eventually { text.standardOutputSoFar.contains("failing   gone.bin: ") })
        #expect(try journey.mediafs("pause", journey.at("*.bin")).status == 0)
        #expect(eventually { json.standardOutputSoFar.contains(#""event":"rule","message":"pause","path":"/*.bin""#) })
        #expect(eventually { text.standardOutputSoFar.contains("rule      ./*.bin: pause") })
        #expect(try journey.mediafs("resume", journey.mountpoint).status == 0)
        #expect(eventually { text.standardOutputSoFar.contains("rule      the whole mount: resume") })
        kill(try #require(try journey.status().pid), SIGKILL)
        #expect(eventually { json.standardOutputSoFar.contains("the server was replaced") })
        #expect(eventually { text.standardOutputSoFar.contains("the server was replaced") })
        try complete()
        func heard(_ listener: BackgroundProcess) -> Substring {
          let told = listener.standardOutputSoFar
          return told.firstRange(of: "replaced").map { told[$0.upperBound...] } ?? ""
        }
        #expect(eventually { heard(json).contains(#""event":"complete""#) }, "\(json.standardOutputSoFar)")
        #expect(eventually { heard(text).contains("complete  a.bin (3.00 MiB)") }, "\(text.standardOutputSoFar)")
        let line = try #require(heard(json).split(separator: "\n").first { $0.contains(#""event":"complete""#) })
        #expect(line.contains(#""path":"a.bin""#) && line.contains(#""bytes":3145728"#), "\(line)")
        try journey.unmount()
        for process in [json, text] { #expect(process.wait(timeout: 60)?.status == 0) }
      }
    }
  }
}
