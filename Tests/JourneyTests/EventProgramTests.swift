import Base
import FoundationEssentials
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// `mount --on complete CMD`: which programs start, with what, as whom, and that none is left behind.
@Suite struct EventProgramTests {
  private static let size: Int64 = 100_000

  /// An origin with these files, and the list of them.
  private func list(_ origin: Origin, _ names: [String], _ query: String = "") -> String {
    names.map { name in
      origin.add("/\(name)", size: Self.size)
      let encoded = [(" ", "%20"), ("\"", "%22"), ("\n", "%0A")].reduce(name) { $0.replacing($1.0, with: $1.1) }
      return origin.url("/") + encoded + query + "\n"
    }.joined()
  }

  private func complete(_ place: EventPlace, _ name: String, _ location: SourceLocation = #_sourceLocation) throws {
    let fetched = try place.mediafs("fetch", "--wait", "\(place.mountpoint)/\(name)")
    #expect(fetched.status == 0, "\(fetched)", sourceLocation: location)
  }

  @Test func aCompletedFileStartsTheProgramOnceWithItsWordsAndItsNames() throws {
    try withOrigin { origin in
      let place = try EventPlace()
      let names = ["plain.bin", "-a 'b' \"c\" $(touch x)\n;d.bin"]
      try place.list(list(origin, names, "?token=s3cret"))
      // As a command line and as -o have it: the same words.
      let words = #"\#(place.script) \#(place.told) 'two  words' "it's \"so\"" $HOME a,b\ * '' 'x'"y"z"#
      try place.mount("--on", "complete", words)
      try complete(place, "plain.bin")
      let strange = "-a 'b' \"c\" $(touch x)"
      let there = try Command.succeed(["ls", place.mountpoint]).split(separator: "\n").map(String.init)
      let name = try #require(there.first { $0.hasPrefix(strange) })
      try complete(place, name)
      try #require(eventually { place.runs.count == 2 }, "\(place.log)")
      for run in place.runs {
        #expect(run.words == ["two  words", "it's \"so\"", "$HOME", "a,b *", "", "xyz"])
        #expect(run.folder == "/" && run.input == "/dev/null" && run.descriptors == [0, 1, 2], "\(run)")
        #expect(run.variables["EVENT"] == "complete" && run.variables["MOUNTPOINT"] == place.mountpoint)
        #expect(run.variables["SIZE"] == "\(Self.size)")
        let url = try #require(run.variables["URL"])
        #expect(url.hasPrefix(origin.url("/")) && url.hasSuffix("?…") && !url.contains("s3cret"), "\(url)")
      }
      let paths = Set(place.runs.compactMap { $0.variables["PATH"] })
      #expect(paths == [place.mountpoint + "/plain.bin", place.mountpoint + "/" + name])
      for run in place.runs {
        let (path, file) = (run.variables["PATH"] ?? "", run.variables["FILE"] ?? "")
        #expect(file.hasPrefix(place.store + "/library/"))
        #expect(try Command.run(["cmp", "--", path, file]).status == 0, "\(run)")
      }
      // The server reads what a program says on a thread of its own.
      for said in ["one line", "to standard error"] {
        #expect(eventually { place.log.contains("plain.bin: its program says: \(said)\n") }, "\(said): \(place.log)")
      }
      // A complete file that is read, or mounted again, completes nothing.
      try Command.succeed(["cat", place.mountpoint + "/plain.bin"])
      let processes = try place.processes()
      try place.unmount()
      #expect(eventually { !processes.contains { Processes.isAlive($0) } })
      let list = "-o"
      let escaped = MountOptions.escaped("complete " + words)
      try place.mount(list, "on=\(escaped)")
      #expect(try place.mediafs("clear", "--force", place.mountpoint + "/plain.bin").status == 0)
      try complete(place, "plain.bin")
      try #require(eventually { place.runs.count == 3 }, "\(place.log)")
      #expect(place.runs.allSatisfy { $0.words == place.runs[0].words })
      try place.unmount()
      #expect(place.runs.count == 3)
    }
  }

  @Test func whatCannotBeStartedIsRefusedAtTheMount() throws {
    let place = try EventPlace()
    let (missing, plain) = (place.folder + "/missing", place.manifest)
    for (words, status, message) in [
      (["--on", "changed", "true"], 2, "--on takes complete and a command, not changed true"),
      (["--on", "complete"], 2, "the option --on needs two words: complete CMD"),
      (["-o", "on=complete"], 2, "--on complete needs a command"),
      (["--on", "complete", ""], 2, "--on complete needs a command"),
      (["--on", "complete", "'' x"], 2, "--on complete needs a command"),
      (["--on", "complete", "a 'b"], 2, "has a ' without its end"),
      (["--on", "complete", "a \"b"], 2, "has a \" without its end"),
      (["--on", "complete", "a b\\"], 2, "ends with a backslash"),
      (["--on", "complete", missing], 1, "--on complete: cannot run \(missing): No such file or directory"),
      (["--on", "complete", plain], 1, "--on complete: cannot run \(plain): Permission denied"),
      (["--on", "complete", place.folder], 1, "--on complete: cannot run \(place.folder): Permission denied"),
      (["--on", "complete", "no-such-program x"], 1, "--on complete: there is no program no-such-program in PATH"),
    ] as [([String], Int32, String)] {
      let said = try place.place.wait(
        place.place.start([place.place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest] + words))
      #expect(said.status == status && said.text.contains(message), "\(words): \(said)")
      #expect(!place.place.isMounted)
    }
    for command in ["launch", "serve"] {
      let said = try place.mediafs(command, "--server-fd", "77", "--options-fd", "78")
      #expect(said.status == 2)
    }
  }

  /// Programs that ignore SIGTERM, with children that leave their group, and one that cannot be run any more.
  @Test func aProgramThatHangsHoldsNobodyAndEndsWithTheMount() throws {
    try withOrigin { origin in
      let place = try EventPlace()
      let names = (0..<6).map { "\($0).bin" }
      try place.list(list(origin, names))
      try place.mount("--on", "complete", "\(place.hanging) \(place.told) deaf")
      for name in names { try complete(place, name) }
      #expect(eventually { place.started.count == 8 }, "\(place.log)")
      try Command.succeed(["cat", "\(place.mountpoint)/5.bin"])
      let processes = try place.processes() + place.started
      #expect(processes.allSatisfy { Processes.isAlive($0) })
      try place.unmount()
      #expect(eventually { !processes.contains { Processes.isAlive($0) } })
      #expect(place.started.count == 8)
      #expect(place.log.contains("no program was started for 2 completed files: the server ends"), "\(place.log)")

      // One that ends badly, and one that is not there any more.
      try place.mount("--on", "complete", "\(place.failing) 3")
      let again = names.map { "\(place.mountpoint)/\($0)" }
      #expect(try place.mediafs(["clear", "--force"] + again).status == 0)
      try complete(place, "0.bin")
      #expect(eventually { place.log.contains(") ended with status 3\n") }, "\(place.log)")
      try #require(unlink(place.failing) == 0)
      try complete(place, "1.bin")
      let gone = "1.bin: --on complete: cannot run \(place.failing): No such file or directory"
      #expect(eventually { place.log.contains(gone) }, "\(place.log)")
      try place.unmount()
    }
  }

  @Test func eachServerHasALauncherOfItsOwn() throws {
    try withOrigin { origin in
      let place = try EventPlace()
      try place.list(list(origin, (0..<5).map { "\($0).bin" }))
      try place.mount("--on", "complete", "\(place.hanging) \(place.told)")
      try complete(place, "0.bin")
      #expect(eventually { place.started.count == 2 }, "\(place.log)")
      // The server is killed: its launcher and its programs end, and the next server's launcher starts others.
      let first = try place.processes()[1...] + place.started
      let old = try #require(place.place.server)
      kill(old, SIGKILL)
      #expect(eventually { !first.contains { Processes.isAlive($0) } })
      #expect(eventually { place.isServed(after: old) })
      try complete(place, "1.bin")
      #expect(eventually { place.started.count == 4 }, "\(place.log)")
      // A newly installed program goes on.
      let second = try place.processes()[1...] + place.started
      try Command.succeed(["cp", builtProduct("mediafs"), place.place.mediafs + ".new"])
      try #require(rename(place.place.mediafs + ".new", place.place.mediafs) == 0)
      let upgraded = try place.mediafs("upgrade", place.mountpoint)
      #expect(upgraded.status == 0, "\(upgraded)")
      #expect(eventually { !second.contains { Processes.isAlive($0) } })
      try complete(place, "2.bin")
      #expect(eventually { place.started.count == 6 }, "\(place.log)")
      // The launcher is killed: the kernel ends what it started, and the mount has no program until the next server.
      let launcher = try #require(place.launcher)
      let programs = place.started.filter { Processes.isAlive($0) }
      kill(launcher, SIGKILL)
      #expect(eventually { place.log.contains("the launcher has ended") }, "\(place.log)")
      #expect(place.launcher == nil)
      #expect(eventually { programs.filter { Processes.isAlive($0) }.count < 2 })
      for process in programs { kill(process, SIGKILL) }  // a group that nobody ends
      try complete(place, "3.bin")
      #expect(eventually { place.log.contains("3.bin: no program is started for it") }, "\(place.log)")
      let last = try #require(place.place.server)
      kill(last, SIGKILL)
      #expect(eventually { place.isServed(after: last) && place.launcher != nil })
      try complete(place, "4.bin")
      #expect(eventually { place.started.count == 8 }, "\(place.log)")
      let all = try place.processes() + place.started
      try place.unmount()
      #expect(eventually { !all.contains { Processes.isAlive($0) } })
    }
  }

  /// The command leads to a mount whose server stands still.
  @Test func aCommandWhoseFileDoesNotAnswerLeavesNoLauncherBehind() throws {
    try withOrigin { origin in
      let place = try EventPlace()
      let silent = try MountPlace()
      #expect(try silent.run("mount", silent.mountpoint, "--manifest", silent.manifest).status == 0)
      let command = place.folder + "/command"
      try #require(symlink("/bin/true", command) == 0)
      try place.list(list(origin, ["a.bin"]))
      try place.mount("--on", "complete", command)
      let (server, launcher) = (try #require(place.place.server), try #require(place.launcher))
      func call() -> Substring? { Processes.text(launcher, "syscall").split(separator: " ").first }
      let resting = call()
      let still = try #require(silent.server)
      kill(still, SIGSTOP)
      defer { kill(still, SIGCONT) }
      try #require(unlink(command) == 0 && symlink(silent.mountpoint + "/nothing", command) == 0)
      try complete(place, "a.bin")
      try #require(eventually { call() != resting })
      kill(server, SIGKILL)
      #expect(eventually { !Processes.isAlive(launcher) })
      #expect(eventually { place.isServed(after: server) })
      kill(still, SIGCONT)
      #expect(eventually { place.log.contains("--on complete: cannot run \(command): No such file") }, "\(place.log)")
      try place.unmount()
      #expect(try silent.run("unmount", silent.mountpoint).status == 0)
    }
  }

  /// Root mounts for nobody: programs are nobody's, without a right of root's and without the server's restrictions.
  @Test(.enabled(if: TestUser.canSwitch)) func theProgramOfAMountForAnotherUserIsTheirs() throws {
    try withOrigin { origin in
      let place = try EventPlace(owner: 65534)
      try place.list(list(origin, ["a.bin"]))
      let mounted = try place.place.wait(
        place.place.start([
          place.place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-o",
          "rw,user=nobody,allow_other,store=\(place.store),on=complete \(place.script) \(place.told) a\\,b",
        ]))
      try #require(mounted.status == 0, "\(mounted)")
      let launcher = try #require(place.launcher)
      for (process, what) in [(launcher, "the launcher")] {
        let status = Processes.text(process, "status")
        #expect(status.contains("Uid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\n"), "\(what)")
        #expect(status.contains("CapBnd:\t0000000000000000\n") && status.contains("CapEff:\t0000000000000000\n"))
        let open = try Command.succeed(["find", "/proc/\(process)/fd", "-type", "l", "-printf", "%f %l\n"])
        let held = open.split(separator: "\n").map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
        #expect(held.allSatisfy { $0 == "/dev/null" || $0.hasPrefix("socket:") || $0.contains("signalfd") }, "\(open)")
        #expect(held.filter { $0.hasPrefix("socket:") }.count == 1 && held.count == 5, "\(open)")
        #expect(!Processes.text(process, "maps").contains("memfd:"))
        let nobody = try #require(TestUser(named: "nobody"))
        #expect(try Command.run(["ls", "/proc/\(process)/fd/"], user: nobody).status != 0, "\(what) is not closed")
      }
      try complete(place, "a.bin")
      try #require(eventually { place.runs.count == 1 }, "\(place.log)")
      let run = place.runs[0]
      #expect(run.words == ["a,b"])
      #expect(run.status["Uid"] == "65534\t65534\t65534\t65534" && run.status["Gid"] == "65534\t65534\t65534\t65534")
      for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] { #expect(run.status[set] == "0000000000000000") }
      #expect(run.status["NoNewPrivs"] == "1" && run.status["Seccomp"] == "0" && run.status["Groups"] == "65534 ")
      #expect(run.home == "/nonexistent", "\(run)")
      try place.unmount()
      #expect(eventually { !Processes.isAlive(launcher) })
    }
  }

  /// What a server that was taken over can have its launcher do: nothing but start the one program.
  @Test func aServerOfStrangersGetsNoMoreThanTheProgram() throws {
    let place = try EventPlace()
    let result = try Command.run(
      ["/usr/bin/python3", "-c", strangeServer, place.place.mediafs, place.script, place.told], timeout: 60)
    #expect(result.status == 0 && result.errors.isEmpty, "\(result)")
    #expect(
      result.output == """
        ready
        too few fields: ended
        too many: ended
        no number: ended
        not UTF-8: ended
        too long: ended
        empty: ended
        a resolver of its own: ended
        another resolver: ended
        a name of its own: started
        1010 files: told
        stopped reading: ended

        """)
    let variables = Set(place.runs.flatMap(\.variables.keys))
    let given: Set = ["EVENT", "MOUNTPOINT", "PATH", "FILE", "URL", "SIZE"]
    // A run of all tests has some of its own.
    let others = variables.subtracting(given).filter { getenv("MEDIAFS_\($0)") == nil }
    #expect(variables.isSuperset(of: given) && others.isEmpty, "\(variables)")
    #expect(place.runs.allSatisfy { $0.words == [] && $0.preload == nil })
  }
}
