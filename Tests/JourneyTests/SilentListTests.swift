import Base
import Glibc
import TestSupport
import Testing

/// A list on a disk that does not answer any more.
@Suite struct SilentListTests {
  @Test func nobodyWaitsForTheDisk() throws {
    try withJourney(.any) { journey in
      let lines = (0..<4).map { "http://127.0.0.1:1/\($0).bin\n" }
      let disk = try SilentDisk(in: journey.folder, lines.joined()) { try journey.start($0) }
      defer { disk.end() }
      try journey.mount("http://127.0.0.1:1/a.bin\n", "--manifest", "far=\(disk.file)")
      let says = "the list \(disk.file) cannot be read: its disk does not answer"
      func far(_ names: [String]) throws {
        try waitUntil(timeout: 60, interval: 0.05, "\(names)") {
          try journey.succeed(["ls", journey.at("far")]).split(separator: "\n").map(String.init) == names
        }
      }
      try far(["0.bin", "1.bin", "2.bin", "3.bin"])
      func expectRefusal() throws {
        let failed = try journey.mediafs("reload", journey.mountpoint)
        #expect(failed.status == 1 && failed.errors.contains(says), "\(failed)")
        #expect(try journey.says(says))
        #expect(try journey.names() == ["a.bin", "far"])
      }
      // In the middle of a reload. It is done when the disk answers: only a user who asks may remove as many names.
      try disk.holdReads()
      try disk.write(lines[0])
      try expectRefusal()
      disk.goOn()
      try far(["0.bin"])
      try waitUntil(timeout: 60, interval: 0.05, "the end of the problem") { try !journey.says("cannot be read") }
      // Everywhere, and for good.
      disk.stop()
      try expectRefusal()
      try waitUntil(timeout: 60, interval: 0.05, "the log to tell") {
        readText(journey.store + "/mediafs.log").contains(says)
      }
      // The kernel ends no process whose request the disk has taken.
      disk.goOn()
      try journey.unmount()
    }
  }

  @Test func aListOnASlowDiskComes() throws {
    try withJourney(.any) { journey in
      let disk = try SilentDisk(in: journey.folder, "http://127.0.0.1:1/0.bin\n") { try journey.start($0) }
      defer { disk.end() }
      try journey.mount("http://127.0.0.1:1/a.bin\n", "--manifest", "far=\(disk.file)")
      // Longer than the first attempt is patient.
      try disk.slowReads(seconds: 12)
      try disk.write("http://127.0.0.1:1/0.bin\nhttp://127.0.0.1:1/1.bin\n")
      try waitUntil(timeout: 200, interval: 0.05, "the next list") { try journey.names("far") == ["0.bin", "1.bin"] }
      disk.goOn()
      try journey.unmount()
    }
  }
}
