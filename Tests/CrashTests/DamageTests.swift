import Base
import Glibc
import TestSupport
import Testing

/// Stores that something else than mediafs has changed: noticed, never served wrongly, never followed outside.
@Suite(.serialized) struct DamageTests {
  @Test(arguments: ["beginning", "middle", "truncated", "empty", "newer", "missing"])
  func damagedCatalog(_ damage: String) throws {
    try DamageFixture.lend { fixture in
      let catalog = fixture.store.store + "/catalog.sqlite"
      switch damage {
      case "beginning":
        try Command.succeed(["dd", "if=/dev/urandom", "of=\(catalog)", "bs=64", "count=1", "conv=notrunc"])
      case "middle":
        try Command.succeed(
          ["dd", "if=/dev/urandom", "of=\(catalog)", "bs=4096", "seek=2", "count=6", "conv=notrunc"])
      case "truncated": try Command.succeed(["truncate", "-s", "6000", catalog])
      case "empty": try Command.succeed(["truncate", "-s", "0", catalog])
      // user_version, at byte 60 of the header, big-endian.
      case "newer": try Command.succeed(["sh", "-c", "printf '\\143' | dd of='\(catalog)' bs=1 seek=63 conv=notrunc"])
      default: try Command.succeed(["rm", catalog])
      }
      let before = damage == "missing" ? [] : try readFile(catalog)
      let isMounted = try fixture.store.start(shimmed: false)
      if isMounted {
        // A page that is not needed yet may be damaged unseen; what is read is right or an error.
        #expect(damage == "missing" || damage == "middle")
        let failed = fixture.readAll()
        #expect(damage != "missing" || failed.isEmpty)
        try fixture.store.unmount()
      } else {
        try fixture.store.waitForEnd()
        #expect(fixture.store.errors.contains("catalog.sqlite"), "\(fixture.store.errors)")
      }
      if damage == "newer" || damage == "beginning" { #expect(try readFile(catalog) == before) }
      if damage != "missing" {
        let verified = try fixture.store.verify()
        #expect(verified.status == 1)
        #expect(try fixture.store.verify(["--repair"]).status == 1)
        try Command.succeed(["sh", "-c", "rm '\(catalog)'*"])
        try fixture.start()
        #expect(fixture.readAll().isEmpty)
        try fixture.store.unmount()
      }
      // Copies in the library are taken in again, not doubled.
      #expect(access("\(fixture.store.library)/shows/whole (2).mp4", F_OK) != 0)
    }
  }

  @Test(arguments: ["missing", "shorter", "empty", "hole", "folder", "link", "fifo"])
  func damagedPartialFile(_ damage: String) throws {
    try DamageFixture.lend { fixture in
      let file = try fixture.partialFile()
      let outside = try fixture.store.folder.write("a secret of another place", to: "outside")
      switch damage {
      case "missing": try Command.succeed(["rm", file])
      case "shorter": try Command.succeed(["truncate", "-s", "50000", file])
      case "empty": try Command.succeed(["truncate", "-s", "0", file])
      case "hole": try Command.succeed(["sh", "-c", "rm '\(file)' && truncate -s 2000000 '\(file)'"])
      case "folder": try Command.succeed(["sh", "-c", "rm '\(file)' && mkdir '\(file)'"])
      case "link": try Command.succeed(["ln", "-sf", outside, file])
      default: try Command.succeed(["sh", "-c", "rm '\(file)' && mkfifo '\(file)'"])
      }
      let found = try fixture.store.verify()
      #expect(found.status == 1 && found.output.contains(DamageFixture.part), "\(found.output)\(found.errors)")
      try fixture.start()
      let failed = fixture.readAll()
      // What cannot be opened is played without being stored.
      #expect(failed.isEmpty, "\(failed)")
      try fixture.store.unmount()
      #expect(try readFile(outside) == Array("a secret of another place".utf8))
      _ = try fixture.store.verify(["--repair"])
      let repaired = try fixture.store.verify()
      #expect(repaired.succeeded, "\(repaired.output)")
      try fixture.start()
      #expect(fixture.readAll().isEmpty)
      try fixture.store.unmount()
    }
  }

  @Test(arguments: ["edited", "edited and mtime restored", "truncated", "deleted", "folder", "link", "folder link"])
  func changedLibraryFile(_ change: String) throws {
    try DamageFixture.lend { fixture in
      let copy = "\(fixture.store.library)/\(DamageFixture.whole)"
      let folder = fixture.store.folder
      // The same size, other bytes: outside, where nothing may be read or changed.
      let other = [UInt8](repeating: 0x58, count: 300_001)
      let outside = try folder.write(other, to: "outside/whole.mp4")
      let edit = "printf edited | dd of='\(copy)' bs=1 seek=1000 conv=notrunc"
      switch change {
      case "edited": try Command.succeed(["sh", "-c", edit])
      case "edited and mtime restored":
        try Command.succeed([
          "sh", "-c", "touch -r '\(copy)' '\(outside)' && \(edit) && touch -r '\(outside)' '\(copy)'",
        ])
      case "truncated": try Command.succeed(["truncate", "-s", "1000", copy])
      case "deleted": try Command.succeed(["rm", copy])
      case "folder": try Command.succeed(["sh", "-c", "rm '\(copy)' && mkdir '\(copy)'"])
      case "link": try Command.succeed(["ln", "-sf", outside, copy])
      default:
        try Command.succeed(
          [
            "sh", "-c",
            "rm -r '\(fixture.store.library)/shows' && ln -s '\(folder.file("outside"))' '\(fixture.store.library)/shows'",
          ])
      }
      let found = try fixture.store.verify()
      #expect(found.status == 1 && found.output.contains(DamageFixture.whole), "\(found.output)\(found.errors)")
      let mine = change.hasPrefix("edited") || change == "truncated" ? try readFile(copy) : []
      try fixture.start()
      #expect(fixture.readAll().isEmpty)
      if change != "folder link" {
        let copy = change == "deleted" ? DamageFixture.whole : "shows/whole (2).mp4"
        try fixture.store.waitForCompletion([DamageFixture.whole], copies: [copy])
      }
      try fixture.store.unmount()
      if !mine.isEmpty { #expect(try readFile(copy) == mine, "the user's file was touched") }
      #expect(try readFile(outside) == other)
      let again = try fixture.store.verify()
      #expect(again.succeeded, "\(again.output)")
    }
  }

  /// The same while it is mounted: seen at the next open.
  @Test func changedLibraryFileWhileMounted() throws {
    try DamageFixture.lend { fixture in
      try fixture.start()
      try fixture.expectRight(DamageFixture.whole)
      let copy = "\(fixture.store.library)/\(DamageFixture.whole)"
      try Command.succeed(["sh", "-c", "mv '\(copy)' '\(copy).mine' && printf mine > '\(copy)'"])
      try fixture.expectRight(DamageFixture.whole)
      try fixture.store.unmount()
      #expect(try readFile(copy) == Array("mine".utf8))
    }
  }

  @Test func verifyFindsWhatTheDiskChanged() throws {
    try DamageFixture.lend { fixture in
      let copy = "\(fixture.store.library)/\(DamageFixture.sealed)"
      // As the disk would: the stamp stays. The catalog is told the new ctime, which nothing else can set back.
      try Command.succeed(["touch", "-r", copy, fixture.store.folder.file("stamp")])
      try Command.succeed(["sh", "-c", "printf rotten | dd of='\(copy)' bs=1 seek=5000 conv=notrunc"])
      try Command.succeed(["touch", "-r", fixture.store.folder.file("stamp"), copy])
      try restamp(fixture.store, copy)
      let found = try fixture.store.verify()
      #expect(found.status == 1 && found.output.contains("sha-256"), "\(found.output)\(found.errors)")
      try fixture.store.folder.write("left over", to: "store/partial/999999")
      try fixture.store.folder.write("not ours", to: "store/partial/notes.txt")
      let repaired = try fixture.store.verify(["--repair"])
      #expect(repaired.status == 1 && repaired.output.contains("damaged sealed.mp4"), "\(repaired.output)")
      #expect(access(fixture.store.store + "/partial/999999", F_OK) != 0)
      #expect(access(fixture.store.library + "/damaged sealed.mp4", F_OK) == 0)
      try Command.succeed(["rm", fixture.store.store + "/partial/notes.txt"])
      let again = try fixture.store.verify()
      #expect(again.succeeded, "\(again.output)")
      try fixture.start()
      try fixture.expectRight(DamageFixture.sealed)
      try fixture.store.waitForCompletion([DamageFixture.sealed])
      try fixture.store.unmount()
    }
  }

  @Test func verifyIsACommand() throws {
    try withServedStore { store in
      #expect(try store.verify(["too much"]).status == 2)
      let unknown = try store.verify()
      #expect(unknown.status == 1 && unknown.errors.contains(store.mountpoint), "\(unknown.errors)")
      let help = try Command.run([builtProduct("mediafs"), "help", "verify"], environment: store.environment)
      #expect(help.succeeded && help.output.contains("--repair"))
    }
  }

  @Test func twoServersDoNotShareAStore() throws {
    try DamageFixture.lend { fixture in
      try fixture.start()
      let other = try fixture.store.folder.makeFolder("other")
      let second = try Command.run(
        [
          builtProduct("mediafs"), "mount", other, "--manifest", fixture.store.folder.file("urls.txt"), "--store",
          fixture.store.store, "--foreground",
        ], environment: fixture.store.environment, timeout: 120)
      #expect(second.status == 1 && second.errors.contains(fixture.store.mountpoint), "\(second.errors)")
      let verified = try fixture.store.verify(["--repair"])
      #expect(verified.status == 1 && verified.errors.contains(fixture.store.mountpoint), "\(verified.errors)")
      try fixture.expectRight(DamageFixture.whole)
      try fixture.store.unmount()
    }
  }

  /// Its helper is about to start the next one. Until then nobody holds the lock.
  @Test func aMountWithoutAServerIsNotVerified() throws {
    try DamageFixture.lend { fixture in
      try fixture.start()
      let helper = try #require(fixture.store.helper)
      let server = try #require(fixture.store.server)
      fixture.store.holdHelper()
      fixture.store.killServer()
      try waitUntil(timeout: 30, "the server's end") { fixture.store.hasEnded(server) }
      for options in [[], ["--repair"]] {
        let verified = try fixture.store.verify(options)
        #expect(verified.status == 1 && verified.errors.contains("is mounted: unmount it first"), "\(verified)")
      }
      #expect(kill(helper, SIGCONT) == 0)
      try fixture.expectRight(DamageFixture.whole)
      try fixture.store.unmount()
    }
  }

  /// What is stored belongs to the resource, whatever its name is.
  @Test func renamedPathsKeepWhatIsStored() throws {
    try DamageFixture.lend { fixture in
      try fixture.list(renamed: [DamageFixture.whole: "moved/other name.mp4", DamageFixture.part: "half.mp4"])
      try fixture.start()
      try fixture.expectRight(DamageFixture.whole, as: "moved/other name.mp4")
      #expect(try fixture.isRight(fixture.store.read("half.mp4", at: 0, count: 50_000), DamageFixture.part, at: 0))
      try fixture.store.unmount()
      try fixture.list(without: [DamageFixture.whole, DamageFixture.part])
      try fixture.start()
      #expect(access("\(fixture.store.mountpoint)/half.mp4", F_OK) != 0)
      try fixture.store.unmount()
      try fixture.list()
      try fixture.start()
      try fixture.expectRight(DamageFixture.whole)
      #expect(
        try fixture.isRight(
          fixture.store.read(DamageFixture.part, at: 1_500_000, count: 50_000), DamageFixture.part, at: 1_500_000))
      try fixture.store.unmount()
      fixture.expectNothingSentTwice()
      #expect(try fixture.store.verify().succeeded)
    }
  }

  /// A store that was copied to another machine: another boot, other inodes.
  @Test func copiedStoreKeepsWhatIsStored() throws {
    try DamageFixture.lend { fixture in
      let store = fixture.store.store
      try Command.succeed([
        "sh", "-c", "cp -a '\(store)' '\(store).copy' && rm -r '\(store)' && mv '\(store).copy' '\(store)'",
      ])
      fixture.store.shim.bootID = try fixture.store.folder.write(
        "00000000-1111-2222-3333-444444444444\n", to: "boot")
      try fixture.start()
      try fixture.expectRight(DamageFixture.whole)
      for offset: Int64 in [0, 1_500_000] {
        let bytes = try fixture.store.read(DamageFixture.part, at: offset, count: 50_000)
        #expect(fixture.isRight(bytes, DamageFixture.part, at: offset))
      }
      try fixture.store.unmount()
      fixture.expectNothingSentTwice()
      let verified = try fixture.store.verify()
      #expect(verified.succeeded, "\(verified.output)")
    }
  }

  private func expectNoMount(of store: ServedStore) throws {
    let isMounted = try store.start()
    if isMounted { try store.unmount() } else { try store.waitForEnd() }
    try #require(!isMounted, "mounted without the library's disk")
  }

  /// A library whose disk is not mounted: an empty folder, or none.
  @Test(arguments: ["empty", "missing"]) func aLibraryWithoutItsDisk(_ what: String) throws {
    try DamageFixture.lend { fixture in
      let (store, library) = (fixture.store, fixture.store.library)
      try Command.succeed(["mv", library, library + ".away"])
      if what == "empty" { try Command.succeed(["mkdir", library]) }
      try expectNoMount(of: store)
      #expect(store.errors.contains(library) && store.errors.contains("is its disk mounted?"), "\(store.errors)")
      #expect(store.errors.contains("2 complete files"), "\(store.errors)")
      if what == "empty" { try Command.succeed(["rmdir", library]) }  // nothing was put in it
      #expect(access(library, F_OK) != 0)
      // The disk is mounted: all is as it was.
      try Command.succeed(["mv", library + ".away", library])
      #expect(try store.verify().succeeded)
      try fixture.start()
      for name in [DamageFixture.whole, DamageFixture.sealed] { try fixture.expectRight(name) }
      try store.unmount()
      fixture.expectNothingSentTwice()
      // It is gone for good: what is forgotten is fetched again.
      try Command.succeed(["rm", "-r", library])
      if what == "empty" { try Command.succeed(["mkdir", library]) }
      let found = try store.verify()
      #expect(found.status == 1 && found.output.contains("is its disk mounted?"), "\(found.output)\(found.errors)")
      try expectNoMount(of: store)  // a look is no repair
      #expect(try store.verify(["--repair"]).status == 1)
      let repaired = try store.verify()
      #expect(repaired.succeeded, "\(repaired.output)")
      try fixture.start()
      #expect(fixture.readAll().isEmpty)
      try store.waitForCompletion([DamageFixture.whole, DamageFixture.sealed])
      try store.unmount()
    }
  }
}
