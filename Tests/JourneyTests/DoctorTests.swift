import Base
import Glibc
import TestSupport
import Testing

@testable import Control
@testable import Storing
@testable import mediafs

/// What `mediafs doctor` finds, each thing brought about.
@Suite struct DoctorTests {
  struct Lack: CustomTestStringConvertible, Sendable {
    /// Run as root in a mount namespace of its own, in a folder of its own, before the program.
    var brought: String
    /// What is found, whole or a part, with its grade in front.
    var found: String
    var testDescription: String { found }
  }

  /// A namespace of mounts has those of other tests too, and would hold them beyond their unmount.
  private static let ownNamespace = "umount --all --lazy --types fuse.mediafs; set -e"

  /// A machine that lacks it. The namespace ends with the program.
  @Test(
    .enabled("This machine has no root for a namespace of its own") { TestUser.canSwitch },
    arguments: [
      Lack(brought: "mount -t tmpfs none /dev", found: "problem  There is no /dev/fuse"),
      Lack(brought: "mount --bind /dev/null /dev/fuse", found: "problem  /dev/fuse is not the FUSE device"),
      Lack(brought: "mkdir etc; mount --bind etc /etc", found: "note     /etc/mtab is missing"),
      Lack(
        brought: "mkdir etc; touch etc/mtab; mount --bind etc /etc", found: "note     /etc/mtab is a file of its own"),
      Lack(brought: "mkdir etc; mount --bind etc /etc", found: "problem  /etc/resolv.conf names no name server"),
      Lack(
        brought: "mkdir etc; echo 'nameserver 192.0.2.1' > etc/resolv.conf; mount --bind etc /etc",
        found: "ok       Names of hosts are looked up at 192.0.2.1."),
      Lack(
        brought: "mkdir etc; echo 'hosts: files resolve' > etc/nsswitch.conf; mount --bind etc /etc",
        found: "ok       Names of hosts are looked up by systemd-resolved."),
      Lack(
        brought: "mkdir etc; mount --bind etc /etc",
        found: "problem  /etc/ssl/certs/ca-certificates.crt cannot be read (No such file or directory)"),
      Lack(brought: "ulimit -n 500", found: "problem  A server started here can open only 500 files"),
      Lack(
        brought: "export https_proxy=http://anna:s3cret@proxy.example:3128",
        found: "note     A mount that is started from here asks through a proxy: https_proxy=http://proxy.example:3128"),
      Lack(
        brought: "mkdir data; mount -t tmpfs -o size=100m none data; export XDG_DATA_HOME=$PWD/data",
        found: "is on tmpfs: what is stored takes memory"),
      Lack(
        brought: "mkdir data; mount -t tmpfs -o size=100m none data; export XDG_DATA_HOME=$PWD/data",
        found: "MiB free: mediafs stores nothing more"),
      Lack(
        brought: "mkdir data; mount -t tmpfs -o ro none data; export XDG_DATA_HOME=$PWD/data",
        found: "cannot be written (Read-only file system)"),
      Lack(
        brought: "mkdir data; mount -t tmpfs -o nr_inodes=1 none data; export XDG_DATA_HOME=$PWD/data",
        found: "has no free inode"),
    ])
  func whatAMachineLacks(_ lack: Lack) throws {
    let place = try TestSupport.TemporaryFolder()
    defer { do { try place.remove() } catch { Issue.record("\(error)") } }
    let script = "\(Self.ownNamespace); \(lack.brought); exec \"$0\" doctor --timeout 600 \"$1\""
    // A mountpoint that is none: only the machine is checked, and no mount of another test's.
    let end = try Command.run(
      ["unshare", "--mount", "sh", "-c", script, builtProduct("mediafs"), place.file("none")],
      environment: ["XDG_DATA_HOME": place.path, "https_proxy": nil], folder: place.path)
    let text = words(end.output)
    #expect(text.contains(lack.found), "\(end)\n\(text)")
    #expect(!end.output.contains("s3cret"))
    #expect(end.status == (end.output.contains("\n  problem ") ? 1 : 0), "\(end)")
  }

  /// The lines with their breaks and margins taken out: a finding is one line.
  private func words(_ output: String) -> String {
    output.replacing(#/\n {11}/#, with: " ")
  }

  @Test(.enabled("This machine has no root for a namespace of its own") { TestUser.canSwitch })
  func whatAnOrdinaryUserLacks() throws {
    try withJourney(.user) { journey in
      let user = try #require(journey.user)
      func doctor(_ brought: String) throws -> String {
        let script = """
          \(Self.ownNamespace); \(brought); exec "${setpriv:-setpriv}" --reuid \(user.userID) --regid \(user.groupID) --clear-groups "$0" doctor "$1"
          """
        let end = try Command.run(
          ["unshare", "--mount", "sh", "-c", script, try Programs.path("mediafs"), journey.mountpoint],
          environment: journey.environment, folder: journey.folder.path)
        return words(end.output)
      }
      let closed = try doctor("touch dev; chmod 600 dev; mount --bind dev /dev/fuse")
      #expect(closed.contains("problem  /dev/fuse may not be opened by you"), "\(closed)")
      let program = try Command.succeed(["sh", "-c", "command -v fusermount3"]).filter { $0 != "\n" }
      let plain = try doctor("cp \(program) plain; chmod 755 plain; mount --bind plain \(program)")
      #expect(plain.contains("problem  \(program) is not setuid root"), "\(plain)")
      let none = try doctor(
        "cp \"$(command -v setpriv)\" .; setpriv=./setpriv; mkdir none; mount --bind none /usr/bin; PATH=/nowhere")
      #expect(none.contains("problem  fusermount3 is missing"), "\(none)")
      let alone = try doctor("touch conf; mount --bind conf /etc/fuse.conf")
      #expect(alone.contains("note     You cannot mount for other users"), "\(alone)")
      let all = try doctor(
        "printf '# user_allow_other\\n user_allow_other # yes\\n' > conf2; mount --bind conf2 /etc/fuse.conf")
      #expect(all.contains("ok       /etc/fuse.conf lets you mount for other users"), "\(all)")
    }
  }

  /// In a user namespace the kernel counts anew.
  @Test(.enabled("This machine has no root for a namespace of its own") { TestUser.canSwitch })
  func whatIsUsedUp() throws {
    let script = "echo 0 > /proc/sys/user/max_inotify_instances; exec \"$0\" doctor /nowhere"
    let end = try Command.run(
      ["unshare", "--user", "--map-root-user", "sh", "-c", script, builtProduct("mediafs")])
    #expect(words(end.output).contains("note     No program of yours can begin to watch files"), "\(end)")
  }

  @Test func theClock() {
    #expect(MachineChecks.clock(1_700_000_000).grade == .problem)
    #expect(MachineChecks.clock(1_800_000_000).grade == .ok)
  }

  @Test func wrongUsage() throws {
    for words in [["a", "b"], ["--timeout", "0"], ["--timeout", "x"], ["--no-such-option"]] {
      #expect(try Command.run([builtProduct("mediafs"), "doctor"] + words).status == 2, "\(words)")
    }
    let unknown = try Command.run([builtProduct("mediafs"), "doctor", "/nowhere/mounted"])
    #expect(unknown.status == 1 && words(unknown.output).contains("is not at or below a mount"), "\(unknown)")
  }

  @Test(arguments: Traveller.all) func aMountThatIsWell(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.add("/a.bin", size: 300_000)
        try journey.mount(origin.url("/a.bin") + "\n")
        try journey.succeed(["cat", journey.at("a.bin")])
        let end = try journey.mediafs("doctor", journey.mountpoint, "--timeout", "600")
        let text = words(end.output)
        for said in [
          "It is mounted, and answers.", "The mount helper is process ", "of this program.",
          "The list is shown as it is, and no host fails.",
        ] { #expect(text.contains("  ok       \(said)") || text.contains(said), "\(text)") }
        #expect(text.contains("\n\(journey.mountpoint):\n"), "\(text)")
        let mount = text.split(separator: "\(journey.mountpoint):\n").last ?? ""
        #expect(!mount.contains("  problem "), "\(mount)")
        #expect(end.status == (text.contains("\n  problem ") ? 1 : 0), "\(text)")
        // Without a name, it is among all live ones.
        #expect(try journey.mediafs("doctor", "--timeout", "2").output.contains("\n\(journey.mountpoint):\n"))
        // Another file of the same program: after an installation.
        try Command.succeed(["cp", try Programs.path("mediafs"), journey.folder.file("mediafs")])
        let other = try journey.run([journey.folder.file("mediafs"), "doctor", journey.mountpoint])
        #expect(
          words(other.output).contains(
            "of another file than this program. To do: mediafs upgrade \(journey.mountpoint)"),
          "\(other.output)")
        try journey.unmount()
        let over = try journey.mediafs("doctor", journey.mountpoint)
        #expect(words(over.output).contains("note     It is not mounted."), "\(over)")
      }
    }
  }

  @Test func aMountThatFails() throws {
    try withJourney { journey in
      let port = try freePort()
      try journey.mount("http://127.0.0.1:\(port)/away.bin\n", "--timeout", "2")
      #expect(try journey.run(["cat", journey.at("away.bin")]).status != 0)
      try journey.succeed(["rm", journey.manifest])
      try waitUntil(timeout: 60, "the doctor to find all of it") {
        let end = try journey.mediafs("doctor", journey.mountpoint)
        let text = words(end.output)
        return end.status == 1 && text.contains("problem  The list is not shown as it is: ")
          && text.contains("not there any more") && text.contains("http://127.0.0.1:\(port)")
          && text.contains("  problem  ")
      }
    }
  }

  /// What no server of a test says easily.
  @Test func whatAServerSays() {
    let mount = MountRecord(mountpoint: "/m", store: "/s", library: "/l", manifest: "/list")
    var totals = StatusTotals()
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.ok])
    totals.failed = 2
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.note])
    totals.failed = 0
    totals.mount = MountFacts(store: "/s", library: "/l", list: nil, log: nil)
    totals.mount?.listProblem = "its disk does not answer"
    let advice = MountChecks.findings(totals, of: mount).first?.advice
    #expect(advice == "mend the list, or what keeps its disk or server from answering, then: mediafs reload /m")
    totals.mount?.listProblem = nil
    totals.mount?.full = "it has its limit"
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.problem])
    totals.mount = nil
    for (ahead, grade) in [(-59, Finding.Grade.ok), (59, .ok), (60, .problem), (-7200, .problem)]
      as [(Int64, Finding.Grade)]
    {
      totals.lines = [LineStatus(host: "http://h", clockAhead: ahead), LineStatus(host: "http://i", clockAhead: ahead)]
      let findings = MountChecks.findings(totals, of: mount)
      #expect(findings.map(\.grade) == [grade], "it is said once")
      #expect(ahead != -7200 || findings[0].text.contains("2h00m behind that of http://h"), "\(findings[0].text)")
    }
    totals.lines = [LineStatus(host: "http://h", errors: 1, error: "refused", errorAge: 4000)]
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.ok], "an hour ago is past")
    totals.lines = [LineStatus(host: "http://h", errors: 1, error: "refused", errorAge: 40)]
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.note])
    totals.lines = [LineStatus(host: "http://h", errors: 1, error: "refused", errorAge: 40, waitsUntil: 1_800_000_000)]
    #expect(MountChecks.findings(totals, of: mount).map(\.grade) == [.problem])
  }

  @Test(arguments: [
    ("nfs", "NFS"), ("nfs4", "NFS"), ("cifs", "SMB"), ("smb3", "SMB"), ("9p", "9p"), ("overlay", "overlay"),
    ("tmpfs", "tmpfs"), ("vfat", "FAT"), ("exfat", "exFAT"), ("fuse.sshfs", "FUSE (fuse.sshfs)"), ("ext4", nil),
    ("btrfs", nil), ("xfs", nil), ("zfs", nil),
  ]) func theFilesystemOfAStore(_ type: String, _ name: String?) {
    let note = DiskChecks.filesystem(type, of: "/s", "the store")
    guard let name else { return #expect(note == nil) }
    #expect(note?.grade == .note && note?.text.hasPrefix("The folder of the store, /s, is on \(name): ") == true)
    #expect(note?.advice.map { $0.contains("--store") || $0.contains("volume") } == true)
  }

  /// What a filesystem says that has no limit, or no unit of its own.
  @Test(arguments: [(.max, 4096, .max), (7, 0, 7 * 512), (7, 4096, 7 * 4096)] as [(UInt, UInt, UInt64)])
  func whatADiskHasFree(_ blocks: UInt, _ unit: UInt, _ bytes: UInt64) {
    var space = statvfs()
    (space.f_bavail, space.f_frsize, space.f_bsize) = (blocks, unit, 512)
    #expect(DiskChecks.free(space) == bytes)
  }

  @Test func theProxyOfAServer() throws {
    try withJourney(.any) { journey in
      try journey.list("http://127.0.0.1:1/a.bin\n")
      try journey.succeed(["env", "http_proxy=http://me:secret@127.0.0.1:9"] + journey.mountCommand())
      let said = try words(journey.mediafs("doctor", journey.mountpoint).output)
      #expect(said.contains("Its server asks through a proxy: http_proxy=http://127.0.0.1:9."))
      #expect(!said.contains("secret"))
    }
  }

  @Test func aDeadMount() throws {
    let place = try MountPlace()
    try #require(try place.run("mount", place.mountpoint, "--manifest", place.manifest).status == 0)
    try place.makeDead()
    let end = try place.run("doctor", place.mountpoint)
    let text = words(end.text)
    #expect(end.status == 1 && text.contains("problem  It is a dead mount"), "\(text)")
    #expect(text.contains("problem  No mount helper is found"), "\(text)")
    #expect(try place.run("unmount", "--lazy", place.mountpoint).status == 0)
  }

  /// The limits of the server are those of where it was started, not of where doctor is.
  @Test func aServerThatOpensFewFiles() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a.bin\n")
      let server = try #require(journey.status().pid)
      func found() throws -> Bool {
        words(try journey.mediafs("doctor", journey.mountpoint, "--timeout", "600").output).contains(
          "problem  Its server can open only 500 files at once")
      }
      #expect(try !found())
      try Command.succeed(["prlimit", "--pid", "\(server)", "--nofile=500:500"])
      #expect(try found())
    }
  }

  /// A server that stands still holds up the checks that ask it, and neither the others nor the end.
  @Test func aMountThatHangs() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a.bin\n", "--watchdog", "0")
      let server = try #require(try journey.status().pid)
      kill(server, SIGSTOP)
      defer { kill(server, SIGCONT) }
      // On a busy machine what does not hang takes its time, too.
      for timeout in [2, 8, 32, 128] {
        let end = try journey.mediafs("doctor", journey.mountpoint, "--timeout", "\(timeout)")
        let text = words(end.output)
        try #require(
          end.status == 1 && text.contains("problem  The check of the server has not ended within \(timeout) s"),
          "\(text)")
        if text.contains("ok       The mount helper is process ") { break }
        try #require(timeout < 128, "\(text)")
      }
      // A store on a disk that hangs: as hard to ask as this mount.
      let hung = try journey.run(
        [
          "env", "XDG_DATA_HOME=\(journey.mountpoint)/a", try Programs.path("mediafs"), "doctor", "--timeout", "2",
          "/nowhere",
        ])
      #expect(hung.status == 1 && words(hung.output).contains("The check of the folder of new stores"), "\(hung)")
    }
  }
}
