import Base
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// Complete files, which root's server lets the kernel read past it, and an ordinary user's serves itself: the same
/// bytes either way, also where one becomes the other.
@Suite struct PassthroughTests {
  private static let size = Int64(6 << 20) + 4321

  private func withFile(
    _ traveller: Traveller, rate: Double? = nil, for user: TestUser? = nil, _ body: (Journey, Origin) throws -> Void
  ) throws {
    try withJourney(traveller) { journey in
      if let user { try #require(chown(journey.folder.path, user.userID, user.groupID) == 0) }
      try withOrigin { origin in
        origin.add("/film.bin", size: Self.size)
        try journey.original("film.bin", size: Self.size)
        origin.configure { $0.lineRate = rate }
        let options = user.map { ["-o", "user=\($0.name),allow_other"] } ?? []
        try journey.list(origin.url("/film.bin") + "\n")
        try journey.succeed(try journey.mountCommand(["--continue", "always"] + options))
        try body(journey, origin)
      }
    }
  }

  /// Starts a program that has the file open and mapped, and has read all of it; it reads again once `name` is there.
  /// `late`: it only opens the file, and reads it, with nothing of it in the mount's cache, and maps it then.
  private func hold(_ journey: Journey, until name: String, _ late: String = "") throws -> BackgroundProcess {
    let holder = try journey.start(
      [
        "/usr/bin/python3", "-u", "-c", holder, journey.at("film.bin"), journey.folder.file("originals/film.bin"),
        journey.folder.file(name), late,
      ])
    return holder
  }

  private func compare(_ journey: Journey) throws {
    let (file, original) = (journey.at("film.bin"), journey.folder.file("originals/film.bin"))
    try journey.succeed(["cmp", file, original])
    if journey.user == nil && geteuid() == 0 { return }
    // The kernel may have had all of it in its cache; these reads reach the server.
    try journey.shell(#"dd if="$1" iflag=direct bs=64K status=none | cmp - "$2""#, file, original)
  }

  /// `name`: whose server it is. An unprivileged one has its helper register the file.
  @Test(.enabled(if: TestUser.canSwitch && Kernel.hasPassthrough), arguments: [nil, "nobody"])
  func aStoppedServerIsNotMissed(of name: String?) throws {
    let user = try name.map { try #require(TestUser(named: $0)) }
    try withFile(.root, for: user) { journey, _ in
      try compare(journey)
      try waitUntil(timeout: 60, "the file to be complete") { access(journey.kept("film.bin"), F_OK) == 0 }
      let helper = try #require(MountUsers.helper(of: journey.mountpoint))
      let server = try #require(Processes.children(of: helper).first)
      #expect(Processes.text(server, "status").contains("Uid:\t\(user?.userID ?? 0)\t"))
      // The kernel keeps a size once it was shown it a second ago: until then the holder's fstat asks the server.
      sleep(seconds: 1.1)
      try journey.succeed(["stat", journey.at("film.bin")])
      let holder = try hold(journey, until: "go", "late")
      defer { holder.terminate() }
      try #require(holder.waitForOutput("holding", timeout: 100))
      #expect(kill(server, SIGSTOP) == 0)
      defer { kill(server, SIGCONT) }
      try journey.folder.write("", to: "go")
      #expect(holder.waitForOutput("same", timeout: 60), "\(holder.standardErrorSoFar)")
    }
  }

  @Test(.enabled(if: TestUser.canSwitch), arguments: [nil, "nobody"])
  func readAheadIsRaisedAndReadsStaySmall(for name: String?) throws {
    let user = try name.map { try #require(TestUser(named: $0)) }
    try withFile(.root, for: user) { journey, _ in
      let mount = try #require(Mounts.current().first { $0.mountpoint == journey.mountpoint })
      #expect(mount.superOptions.contains("max_read=65536"))
      let setting = "/sys/class/bdi/\(mount.device)/read_ahead_kb"
      // Where it may not be written (a container), the mount does without.
      if access(setting, W_OK) == 0 { #expect(readText(setting) == "256\n") }
    }
  }

  @Test(arguments: Traveller.all) func readersBeforeDuringAndAfterCompletion(_ traveller: Traveller) throws {
    try withFile(traveller, rate: 4e6) { journey, origin in
      let early = try hold(journey, until: "go")
      defer { early.terminate() }
      // Others come and go meanwhile.
      let loops = try (0..<2).map { _ in
        try journey.start([
          "/usr/bin/python3", "-u", "-c", looper, journey.at("film.bin"), journey.folder.file("originals/film.bin"),
          journey.folder.file("enough"),
        ])
      }
      defer { for loop in loops { loop.terminate() } }
      try #require(early.waitForOutput("holding", timeout: 200), "\(early.standardErrorSoFar)")
      try journey.wait(for: "complete", "film.bin")
      try compare(journey)
      try journey.folder.write("", to: "go")
      #expect(early.waitForOutput("same", timeout: 100), "\(early.standardErrorSoFar)")
      try journey.folder.write("", to: "enough")
      for loop in loops {
        let result = try #require(loop.wait(timeout: 200), "a reader hangs")
        #expect(result.succeeded, "\(result.errors)")
      }
      try compare(journey)
      try journey.succeed(["cmp", journey.kept("film.bin"), journey.folder.file("originals/film.bin")])
      #expect(try journey.succeed(["stat", "-c", "%s %Y", journey.at("film.bin")]) == "\(Self.size) 1700003600\n")
      try journey.expectSentOnce(origin, "/film.bin")
      #expect(!journey.log.contains("passthrough"), "it is nobody's business how it is read")
    }
  }

  @Test(arguments: Traveller.all, ["edited", "removed", "renamed"])
  func aCopyThatWasTouched(_ traveller: Traveller, _ how: String) throws {
    try withFile(traveller) { journey, _ in
      try compare(journey)
      try journey.wait(for: "complete", "film.bin")
      let holder = try hold(journey, until: "go")
      defer { holder.terminate() }
      try #require(holder.waitForOutput("holding", timeout: 100), "\(holder.standardErrorSoFar)")
      let copy = journey.kept("film.bin")
      switch how {
      case "edited": try journey.shell(#"printf edited | dd of="$1" bs=1 seek=100000 conv=notrunc status=none"#, copy)
      case "removed": try journey.succeed(["rm", "-f", copy])
      default: try journey.succeed(["mv", copy, journey.kept("mine.bin")])
      }
      // Opened anew while another has it open from that copy: the origin's bytes all the same.
      try compare(journey)
      try journey.wait(for: "complete", "film.bin")
      try compare(journey)
      if how != "edited" {
        // Who had it open goes on.
        try journey.folder.write("", to: "go")
        #expect(holder.waitForOutput("same", timeout: 100), "\(holder.standardErrorSoFar)")
      }
      holder.terminate()
      try compare(journey)
      if how == "edited" {
        #expect(try journey.shell(#"dd if="$1" bs=1 skip=100000 count=6 status=none"#, copy) == "edited")
      }
    }
  }

  @Test(arguments: Traveller.all) func aCopyThatGoesUnderTwoNames(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.add("/film.bin", size: Self.size)
        try journey.original("film.bin", size: Self.size)
        let url = origin.url("/film.bin")
        try journey.mount("\(url)\n\(url)\n  out=twin.bin\n", "--continue", "always")
        try compare(journey)
        try journey.wait(for: "complete", "film.bin")
        let holder = try hold(journey, until: "go")
        defer { holder.terminate() }
        try #require(holder.waitForOutput("holding", timeout: 100), "\(holder.standardErrorSoFar)")
        try journey.succeed(["rm", "-f", journey.kept("film.bin")])
        origin.configure { $0.lineRate = 1e6 }
        let before = origin.log.bytesSent(of: "/film.bin")
        let reader = try journey.start(["cmp", journey.at("twin.bin"), journey.folder.file("originals/film.bin")])
        defer { reader.terminate() }
        try waitUntil(timeout: 60, "the twin to be fetched") { origin.log.bytesSent(of: "/film.bin") > before }
        // An open of the first name, which open handles read from the copy that is gone, while the other is being read.
        try compare(journey)
        let end = try #require(reader.wait(timeout: 100), "the twin's reader hangs")
        #expect(end.succeeded, "\(end.errors)")
        try journey.folder.write("", to: "go")
        #expect(holder.waitForOutput("same", timeout: 100), "\(holder.standardErrorSoFar)")
      }
    }
  }
}

private let holder = """
  import mmap, os, sys, time
  path, original, signal, late = sys.argv[1:]
  right = open(original, 'rb').read()
  file = os.open(path, os.O_RDONLY)
  memory = None
  def check():
      assert os.fstat(file).st_size == len(right), 'size'
      at = 0
      while at < len(right):
          piece = os.pread(file, 100_003, at)
          assert piece and piece == right[at:at + len(piece)], at
          at += len(piece)
      global memory
      if not memory: memory = mmap.mmap(file, 0, prot=mmap.PROT_READ)
      assert memory[:] == right, 'map'
  if not late: check()
  print('holding')
  while not os.path.exists(signal): time.sleep(0.02)
  if late: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
  check()
  print('same')
  time.sleep(1000)
  """

private let looper = """
  import mmap, os, random, sys, time
  path, original, signal = sys.argv[1:]
  right = open(original, 'rb').read()
  while not os.path.exists(signal):
      file = os.open(path, os.O_RDONLY)
      for _ in range(5):
          at = random.randrange(len(right))
          piece = os.pread(file, 65_537, at)
          assert piece == right[at:at + 65_537], at
      if random.random() < 0.3:
          with mmap.mmap(file, 0, prot=mmap.PROT_READ) as memory:
              at = random.randrange(len(right))
              assert memory[at:at + 9000] == right[at:at + 9000], at
      os.close(file)
      time.sleep(0.01)
  """
