import Base
import Glibc
import TestSupport
import Testing

/// Giving space back.
@Suite struct ClearTests {
  @Test func aCopyIsClearedIfItsOriginHasIt() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try withOrigin { origin in
          let names = ["same.bin", "changed.bin", "gone.bin", "plain.bin"]
          for name in names { origin.add("/\(name)", size: 200_000) }
          origin.change("/plain.bin") { ($0.tag, $0.modified) = (OriginResource.Tag.none, nil) }
          try journey.mount(names.map { origin.url("/\($0)") + "\n" }.joined(), "--timeout", "5")
          try journey.succeed([try Programs.path("mediafs"), "fetch", "--wait", journey.mountpoint])
          origin.nextGeneration("/changed.bin")
          origin.remove("/gone.bin")
          origin.log.reset()
          let dry = try journey.mediafs("clear", "--all", "--dry-run")
          #expect(dry.status == 1 && dry.output.contains("would delete") && dry.output.contains("of 1 file"), "\(dry)")
          #expect(try journey.status().totals.complete == 4)
          let cleared = try journey.mediafs("clear", "--all")
          #expect(cleared.status == 1 && cleared.output.contains("of 1 file"), "\(cleared)")
          for (name, reason) in [("changed", "another version"), ("gone", "404"), ("plain", "told apart")] {
            #expect(
              cleared.errors.contains { $0.hasPrefix("mediafs: kept \(name).bin: ") && $0.contains(reason) },
              "\(cleared)"
            )
          }
          #expect(cleared.errors.contains("--force"))
          #expect(try journey.status().file("same.bin").state == "remote")
          #expect(try journey.status().totals.complete == 3)
          for name in ["changed", "gone", "plain"] { #expect(origin.log.bytesSent(of: "/\(name).bin") < 400_000) }
          try journey.succeed([try Programs.path("mediafs"), "clear", "--force", "--all"])
          #expect(try journey.status().totals.complete == 0)
        }
      }
    }
  }

  /// One resource under two names: what holds of it, holds of both.
  @Test func aResourceWithTwoNames() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try withOrigin { origin in
          origin.add("/a.bin", size: 200_000)
          let url = origin.url("/a.bin")
          try journey.mount("\(url)\n\(url)\n  out=twin.bin\n", "--continue", "never")
          let program = try Programs.path("mediafs")
          try journey.succeed([program, "keep", journey.at("a.bin")])
          try journey.wait(for: "complete", "a.bin")
          #expect(try journey.mediafs("status", journey.at("twin.bin")).output.contains("rule: keep (for a.bin)"))
          let kept = try journey.mediafs("clear", "--force", journey.at("twin.bin"))
          #expect(kept.status == 1 && kept.errors.contains("kept twin.bin: the rule to keep a.bin"), "\(kept)")
          #expect(try journey.status().file("a.bin").state == "complete")
          try journey.unmount()
          let offline = try journey.mediafs("clear", "--force", journey.at("twin.bin"))
          #expect(offline.status == 1 && offline.errors.contains("the rule to keep a.bin"), "\(offline)")
          try journey.mount(nil, "--continue", "never")
          try journey.succeed([program, "auto", journey.at("a.bin")])
          let dry = try journey.mediafs("clear", "--all", "--force", "--dry-run").output
          #expect(dry.contains("of 1 file"), "\(dry)")
          try journey.unmount()
          let dryOffline = try journey.mediafs("clear", "--all", "--force", "--dry-run", "--store", journey.store)
            .output
          #expect(dryOffline.contains("of 1 file"), "\(dryOffline)")
        }
      }
    }
  }

  @Test func withoutAServer() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/whole.bin", size: 200_000)
        origin.add("/part.bin", size: 4 << 20)
        try journey.mount(
          [origin.url("/whole.bin"), origin.url("/part.bin")].joined(separator: "\n"), "--continue", "never")
        try journey.succeed([try Programs.path("mediafs"), "fetch", "--wait", journey.at("whole.bin")])
        try journey.succeed(["head", "-c", "100000", journey.at("part.bin")])
        let busy = try journey.mediafs("status", "--store", journey.store)
        #expect(busy.status == 0 && busy.output.contains("served by process"), "\(busy)")
        try journey.unmount()
        let status = try journey.mediafs("status", "--store", journey.store).output
        #expect(status.contains("whole.bin") && status.contains("read from its store"), "\(status)")
        let twice = try journey.mediafs("clear", "--store", journey.store, "--all", journey.folder.path + "/another")
        #expect(twice.status == 2 && twice.errors.contains("give no MOUNTPOINT beside it"), "\(twice)")
        #expect(try journey.status().file("part.bin").stored > 0)
        let kept = try journey.mediafs("clear", "--store", journey.store, "--all")
        #expect(
          kept.status == 1 && kept.errors.contains("kept whole.bin") && kept.errors.contains("--force"), "\(kept)")
        let left = try journey.status()
        #expect(try left.file("part.bin").stored == 0 && left.file("whole.bin").state == "complete")
        try journey.succeed([try Programs.path("mediafs"), "clear", "--force", journey.at("whole.bin")])
        #expect(try journey.status().file("whole.bin").state == "remote")
        var found = stat()
        #expect(stat(journey.kept("whole.bin"), &found) != 0)
        let wrong = try journey.mediafs("clear", journey.at("no.bin"))
        #expect(wrong.status == 1 && wrong.errors.contains("the mount has no no.bin"), "\(wrong)")
        try journey.mount()
        try journey.succeed(["cat", journey.at("whole.bin")])
      }
    }
  }

  @Test func unlisted() throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try withOrigin { origin in
          for name in ["whole.bin", "part.bin", "stays.bin"] {
            origin.add("/\(name)", size: name == "whole.bin" ? 200_000 : 4 << 20)
          }
          let all = ["whole.bin", "part.bin", "stays.bin"].map { origin.url("/\($0)") + "\n" }
          try journey.mount(all.joined(), "--continue", "never")
          try journey.succeed([try Programs.path("mediafs"), "fetch", "--wait", journey.at("whole.bin")])
          for name in ["part.bin", "stays.bin"] { try journey.succeed(["head", "-c", "1000000", journey.at(name)]) }
          let stored = try journey.status().file("part.bin").stored
          try journey.unmount()
          try journey.mount(all[2], "--continue", "never")
          let totals = try journey.status().totals
          #expect(totals.unlisted == stored && stored >= 1_000_000, "\(totals)")
          #expect(try journey.mediafs("status").output.contains("clear --unlisted"))
          let dry = try journey.mediafs("clear", "--unlisted", "--dry-run")
          #expect(dry.status == 0 && dry.output.contains("of 1 file"), "\(dry)")
          #expect(try journey.status().totals.unlisted == stored)
          try journey.succeed([try Programs.path("mediafs"), "clear", "--unlisted"])
          let after = try journey.status()
          #expect(after.totals.unlisted == 0)
          #expect(try after.file("stays.bin").stored >= 1_000_000)
          var found = stat()
          #expect(stat(journey.kept("whole.bin"), &found) == 0, "a copy in the library is gone")
          // Of a live mount, at once: the file is still in memory.
          try journey.list(all.joined())
          try journey.waitForNames(["part.bin", "stays.bin", "whole.bin"])
          try journey.succeed(["head", "-c", "1000000", journey.at("part.bin")])
          try journey.wait(forStored: 1_000_000, "part.bin")
          try journey.list(all[0] + all[2])
          try journey.waitForNames(["stays.bin", "whole.bin"])
          let cleared = try journey.mediafs("clear", "--unlisted")
          #expect(cleared.status == 0 && cleared.errors.isEmpty, "\(cleared)")
          #expect(try journey.status().totals.unlisted == 0)
          try journey.unmount()
          let verified = try journey.mediafs("verify")
          #expect(verified.status == 0, "\(verified)")
        }
      }
    }
  }

  /// Nothing would fetch them again; the rule waits for the line.
  @Test(arguments: ["in memory", "on disk alone"]) func unlistedFilesThatAreKept(place: String) throws {
    try SystemRecords.unused {
      try withJourney { journey in
        try withOrigin { origin in
          let names = ["ruled.bin", "fetched.bin", "stays.bin"]
          for name in names { origin.add("/\(name)", size: 4 << 20) }
          let all = names.map { origin.url("/\($0)") + "\n" }
          try journey.mount(all.joined(), "--continue", "never")
          for name in names { try journey.succeed(["head", "-c", "1000000", journey.at(name)]) }
          for name in names { try journey.wait(forStored: 1_000_000, name) }
          // Neither is completed before it leaves the list.
          origin.fault(.status(503))
          let program = try Programs.path("mediafs")
          try journey.succeed([program, "keep", journey.at("ruled.bin")])
          try journey.succeed([program, "fetch", journey.at("fetched.bin")])
          try journey.list(all[2])
          try journey.succeed([program, "reload", journey.mountpoint])
          if place == "on disk alone" {
            try journey.unmount()
            try journey.mount(nil, "--continue", "never")
          }
          #expect(try journey.status().totals.unlisted ?? 0 >= 2_000_000)
          let cleared = try journey.mediafs("clear", "--unlisted")
          #expect(cleared.status == 0 && cleared.output.contains("of 2 files"), "\(cleared)")
          #expect(try journey.status().totals.unlisted == 0)
          origin.clearFaults()
          try journey.list(all.joined())
          try journey.waitForNames(names.sorted())
          try journey.wait(for: "complete", "ruled.bin")
          #expect(try journey.status().file("fetched.bin").state == "remote")
        }
      }
    }
  }
}

extension String {
  /// Whether one of its lines is so.
  fileprivate func contains(_ isSo: (Substring) -> Bool) -> Bool { split(separator: "\n").contains(where: isSo) }
}
