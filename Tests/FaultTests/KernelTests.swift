import Base
import Glibc
import TestSupport
import Testing

/// Readers that are killed or interrupted, mounts that end, and many of everything.
@Suite("The kernel and its readers")
struct KernelTests {
  /// Attempts that an origin sees while a reader waits, and none behind that.
  private static let endless = ["--timeout", "600", "--continue=never"]

  /// Whether requests still come: counted over a while in which a waiting reader would have made several.
  private static func isAsked(_ origin: Origin) -> Bool {
    sleep(seconds: 3)
    let before = origin.log.totals.requests
    sleep(seconds: 4)
    return origin.log.totals.requests > before
  }

  @Test("A killed reader goes at once, and its read is nobody's demand", arguments: [true, false])
  func killedReader(isReaped: Bool) async {
    await onMount(options: Self.endless) { stage in
      stage.origin.decide { $0.firstByte > 0 ? [.resetBeforeHeaders] : [] }
    } _: { scene in
      // Unreaped, it stays as a zombie below a parent that does not look after it.
      let reader =
        isReaped ? ["cat", scene.file] : ["sh", "-c", "cat \"$1\" & echo $!; exec sleep 1000", "sh", scene.file]
      let process = try BackgroundProcess(reader)
      defer { process.terminate(grace: 0) }
      let origin = scene.origin
      let isWaiting = eventually(timeout: 60) { origin.log.totals.requests >= 5 }
      scene.expect(isWaiting, "nothing was asked for the reader: \(origin.log.totals)")
      if isReaped {
        process.signal(SIGKILL)
        scene.expect(process.wait(timeout: 60) != nil, "the killed reader is still there")
      } else if let id = Int32(process.standardOutputSoFar.split(separator: "\n").first ?? "") {
        kill(id, SIGKILL)
      }
      scene.expect(!Self.isAsked(origin), "its bytes are still asked for")
      origin.clearFaults()
      process.terminate(grace: 0)
      scene.readUntilWhole(size: 1 << 20)
    }
  }

  enum End: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case lazily = "unmounted lazily"
    case told = "the server is told to end"
    var testDescription: String { rawValue }
  }

  @Test("A mount that ends with reads parked and transfers running", arguments: End.allCases)
  func ends(end: End) async {
    await onMount(size: 64 << 20, options: Self.endless) { stage in
      stage.origin.configure { $0.connectionRate = 1e6 }
      stage.origin.decide { $0.firstByte >= 32 << 20 ? [.stallBeforeHeaders] : [] }
    } _: { scene in
      let server = try scene.mount.server()
      let path = scene.file
      let readers = try [0, 40 << 20].map { offset in
        try BackgroundProcess(["tail", "-c", "+\(offset + 1)", path])
      }
      defer { for reader in readers { reader.terminate(grace: 0) } }
      let origin = scene.origin
      let isParked = eventually(timeout: 60) {
        origin.log.entries.contains { $0.request.firstByte >= 32 << 20 } && origin.log.totals.bytesSent > 300_000
      }
      scene.expect(isParked, "the readers do not read: \(origin.log.totals)")
      switch end {
      case .lazily:
        if umount2(scene.mount.path, Int32(MNT_FORCE | MNT_DETACH)) != 0 {
          _ = try Command.run(["fusermount3", "-u", "-z", scene.mount.path], timeout: 60)
          for reader in readers { reader.signal(SIGKILL) }
        }
      case .told: kill(server, SIGTERM)
      }
      for reader in readers {
        let end = reader.wait(timeout: FaultRun.bound)
        scene.expect(end != nil && end?.status != 0, "a reader: \(end.map { "\($0.status)" } ?? "hangs")")
      }
      let helper = scene.mount.process.wait(timeout: FaultRun.bound)
      scene.expect(helper != nil, "the helper is still there")
      scene.expect(!Mounts.isMounted(scene.mount.path), "still mounted")
      scene.expect(kill(server, 0) != 0, "the server is still there")
    }
  }

  @Test("Twelve stalled readers, and two hundred that have what they want")
  func hitsBesideStalls() async {
    await onMount(options: ["--timeout", "600", "--continue=never"]) { stage in
      stage.manifest = ""
      for number in 0..<212 {
        stage.origin.set("/\(number).bin", OriginResource(size: 128 << 10, pattern: "/\(number).bin"))
        stage.manifest += stage.origin.url("/\(number).bin") + "\n"
        if number >= 200 { stage.origin.fault(.stallBeforeHeaders, path: "/\(number).bin") }
      }
    } _: { scene in
      let mount = scene.mount
      let read = { @Sendable (number: Int) -> ReadOutcome in
        Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin")
      }
      let stored = Reader.sideBySide(timeout: FaultRun.bound, (0..<200).map { number in { read(number) } })
      scene.expect(
        stored.allSatisfy { $0?.bytes == 128 << 10 }, "the first time: \(stored.filter { $0?.bytes != 128 << 10 })")
      for number in 0..<200 {  // out of the page cache: the server is to answer
        let descriptor = open(mount.file("\(number).bin"), O_RDONLY | O_CLOEXEC)
        posix_fadvise(descriptor, 0, 0, Int32(POSIX_FADV_DONTNEED))
        close(descriptor)
      }
      let stalled = try (200..<212).map { try BackgroundProcess(["cat", mount.file("\($0).bin")]) }
      defer { for process in stalled { process.terminate(grace: 0) } }
      let origin = scene.origin
      _ = eventually(timeout: 60) { origin.log.entries.filter { $0.status == nil }.count >= 12 }
      let hits = Reader.sideBySide(timeout: FaultRun.bound, (0..<200).map { number in { read(number) } })
      scene.expect(
        hits.allSatisfy { $0?.bytes == 128 << 10 && $0?.wrongAt == nil },
        "hits: \(hits.filter { $0?.bytes != 128 << 10 })")
      scene.expect(stalled.allSatisfy(\.isRunning), "a stalled reader has ended")
    }
  }

  @Test("No operation that writes is possible")
  func readOnly() async {
    await onMount { scene in
      let path = scene.file
      let folder = scene.mount.path
      let attempts: [(String, @Sendable () -> Int32)] = [
        ("open to write", { open(path, O_WRONLY | O_CLOEXEC) }),
        ("open to truncate", { open(path, O_RDWR | O_TRUNC | O_CLOEXEC) }),
        ("create", { open(folder + "/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0o644) }),
        ("truncate", { truncate(path, 5) }), ("chmod", { chmod(path, 0o600) }), ("chown", { chown(path, 0, 0) }),
        ("unlink", { unlink(path) }), ("rename", { rename(path, path + "2") }),
        ("mkdir", { mkdir(folder + "/new", 0o755) }),
        (
          "rmdir",
          {
            rmdir(folder + "/nothing") == 0
              ? 0
              : errno == ENOENT
                ? {
                  errno = EROFS; return -1
                }() : -1
          }
        ),
        ("link", { link(path, folder + "/new") }), ("symlink", { symlink("to", folder + "/new") }),
        ("mknod", { mknod(folder + "/new", S_IFREG | 0o644, 0) }),
        ("utimes", { utimes(path, nil) }),
      ]
      for (name, attempt) in attempts {
        let error = scene.bounded(name) { attempt() == -1 ? errno : 0 }
        scene.expect(error == EROFS, "\(name): \(Errno(rawValue: error ?? -1))")
      }
      let set = try Command.run(["python3", "-c", "import os, sys; os.setxattr(sys.argv[1], 'user.x', b'1')", path])
      scene.expect(set.errors.contains("Read-only"), "setxattr: \(set.errors)")
      scene.readUntilWhole(size: 1 << 20)
    }
  }

  /// The kernel forgets names when it likes: so many that what is kept of each would show.
  @Test("Storms of opens, of stats and of lookups, and the memory they leave")
  func storms() async {
    await onMount { stage in
      stage.manifest = (0..<5000).map { "http://127.0.0.1:1/f\($0).bin\n" }.joined() + stage.manifest
    } _: { scene in
      scene.readUntilWhole(size: 1 << 20)
      let server = try scene.mount.server()
      let path = scene.file
      let folder = scene.mount.path
      let round = { @Sendable (number: Int) -> Int in
        var failed = 0
        for _ in 0..<2000 {
          let descriptor = open(path, O_RDONLY | O_CLOEXEC)
          if descriptor < 0 { failed += 1 } else { close(descriptor) }
        }
        var status = stat()
        for index in 0..<4000 where stat("\(folder)/none-\(number)-\(index)", &status) == 0 || errno != ENOENT {
          failed += 1
        }
        for index in number * 1000..<(number + 1) * 1000 where stat("\(folder)/f\(index).bin", &status) != 0 {
          failed += 1
        }
        sleep(seconds: 7)  // what nobody uses is put away after a while
        return failed
      }
      scene.expect(scene.bounded("the first round") { round(0) } == 0, "opens or lookups failed")
      var resident = [ProcessMemory.resident(server)]
      for number in 1...4 {
        scene.expect(scene.bounded("round \(number)") { round(number) } == 0, "opens or lookups failed")
        resident.append(ProcessMemory.resident(server))
      }
      // What is kept of each would show in every round. What the allocator keeps shows in one or two: tests beside this
      // one delay the moment at which things are put away.
      let growths = zip(resident.dropFirst(), resident).map { $0 - $1 }.sorted()
      scene.expect(resident[0] > 0 && growths[1] < 1 << 10, "resident, KiB: \(resident)")
    }
  }
}
