import Base
import FoundationEssentials
import Glibc
import TestSupport
import Testing

/// `mount --resolver NAME=CMD`: real programs that give links, to a real origin.
@Suite struct ResolverTests {
  private static let size: Int64 = 8 << 20

  /// Gives links with a new token each, and notes the asks. Arguments: a folder, and the link without its token.
  private static let counting = #"""
    #!/bin/sh
    number=0
    echo $$ >"$1/process"
    readlink /proc/$$/fd/* >"$1/descriptors"
    echo "to nobody: $2" >&2
    while read -r ask; do
      number=$((number + 1))
      echo "$ask" >>"$1/asks"
      key=$(printf '%s' "$ask" | sed 's/.*"key":"\([^"]*\)".*/\1/')
      printf '{"key":"%s","url":"%s?token=%s",' "$key" "$2" "$number"
      printf '"headers":{"X-Pass":"plugh-header"},"cookies":"c=plugh-cookie"}\n'
    done
    """#

  private func program(_ place: EventPlace, _ name: String, _ text: String) throws -> String {
    let path = "\(place.folder)/\(name)"
    try place.place.write(text + "\n", to: path)
    try #require(chmod(path, 0o755) == 0)
    return path
  }

  private func expectWhole(_ place: EventPlace, _ location: SourceLocation = #_sourceLocation) throws {
    let bytes = [UInt8](try Data(contentsOf: URL(filePath: place.mountpoint + "/film.mp4")))
    #expect(Int64(bytes.count) == Self.size, sourceLocation: location)
    let wrong = Pattern.check(bytes, name: "/secret-way/film.mp4", generation: 1, offset: 0)
    #expect(wrong == nil, sourceLocation: location)
  }

  @Test("A reader reads all through links that die after two requests each; each byte comes once, and nothing is told")
  func linksThatEnd() throws {
    try withOrigin { origin in
      let place = try EventPlace()
      origin.configure { $0.lineRate = 6_000_000 }
      origin.add("/secret-way/film.mp4", size: Self.size)
      let used = Lock<[String: Int]>([:])
      origin.decide { request in
        guard request.header("X-Pass") == "plugh-header", request.header("Cookie") == "c=plugh-cookie",
          request.header("X-Given") == nil
        else { return [.status(401)] }
        let count = used.withLock { used in
          used[request.target, default: 0] += 1
          return used[request.target, default: 0]
        }
        return count > 2 ? [.status(403)] : []
      }
      let script = try program(place, "counting", Self.counting)
      try place.list("http://page.example/watch?v=1\n  resolver=count\n  out=film.mp4\n")
      try place.mount(
        "--resolver", "count=\(script) \(place.told) \(origin.url("/secret-way/film.mp4"))", "--header",
        "X-Given: plugh-given", "-v", "-v")
      try expectWhole(place)
      let asks = readText(place.told + "/asks").split(separator: "\n")
      #expect(asks.count > 2 && asks.first?.contains(#""why":"first""#) == true, "\(asks)")
      #expect(asks.dropFirst().allSatisfy { $0.contains(#""why":"403""#) && $0.contains("\"size\":\(Self.size)") })
      #expect(asks.allSatisfy { $0.contains(#""source":"http://page.example/watch?v=1""#) })
      #expect(origin.log.sentMoreThanOnce(of: "/secret-way/film.mp4").isEmpty)
      #expect(origin.log.bytesSent(of: "/secret-way/film.mp4") == Self.size)
      // It has its two pipes, no standard error, and what its shell opened: one pipe makes room for what it writes.
      let descriptors = readText(place.told + "/descriptors").split(separator: "\n").map(String.init)
      let others = descriptors.filter { !["/dev/null", script, place.told + "/descriptors"].contains($0) }
      #expect((1...2).contains(others.count) && others.allSatisfy { $0.hasPrefix("pipe:") }, "\(descriptors)")
      var shown = place.log + (try Command.succeed(["ps", "-eww", "-o", "args"]))
      for words in [["status"], ["status", "--json"], ["metrics"]] {
        shown += try place.mediafs(words + [place.mountpoint]).text
      }
      shown += try Command.succeed(["getfattr", "-d", "-m", "-", place.mountpoint + "/film.mp4"])
      shown += try place.mediafs("status", place.mountpoint + "/film.mp4").text
      for line in shown.split(separator: "\n") {
        // The command line of the resolver is the user's own.
        if line.contains(script) || line.contains("counting") { continue }
        for secret in ["plugh", "token=", "secret-way"] where line.contains(secret) {
          Issue.record("\(secret) is shown: \(line)")
        }
      }
      let process = try #require(Int32(readText(place.told + "/process").dropLast()))
      #expect(Processes.isAlive(process))
      try place.unmount()
      #expect(eventually { !Processes.isAlive(process) })
    }
  }

  @Test(
    "A resolver that misbehaves fails its readers, and nothing else",
    arguments: [
      ("says nothing", "cat >/dev/null"), ("ends", "exit 3"), ("floods", "exec yes"),
      ("floods without a line", "exec tr '\\0' x </dev/zero"), ("reads nothing", "exec sleep 1000"),
      (
        "another key", #"while read -r a; do echo '{"key":"00000000000000000000000000000000","url":"http://h/"}'; done"#
      ),
      ("no JSON", "while read -r a; do echo hello; done"), ("binary", "read -r a; head -c 100000 /dev/urandom"),
      (
        "no link", #"while read -r a; do echo "$a" | sed 's/"source":.*/"url":"file:\/\/\/etc\/passwd"}/'; done"#
      ),
    ])
  func misbehaves(_ name: String, _ text: String) throws {
    try withOrigin { origin in
      let place = try EventPlace()
      origin.add("/plain.bin", size: 1000)
      try place.list("\(origin.url("/plain.bin"))\nhttp://page.example/1\n  resolver=bad\n  out=film.mp4\n")
      let script = try program(place, "bad", "#!/bin/sh\n\(text)")
      try place.mount("--resolver", "bad=\(script)", "--timeout", "4")
      #expect(try Command.run(["cat", place.mountpoint + "/film.mp4"], timeout: 30).status != 0)
      try Command.succeed(["cmp", "-n", "1000", place.mountpoint + "/plain.bin", place.mountpoint + "/plain.bin"])
      let launcher = try #require(place.launcher)
      #expect(Processes.isAlive(launcher))
      try place.unmount()
      #expect(eventually { !Processes.isAlive(launcher) })
      #expect(try Command.run(["pgrep", "-f", script]).status == 1)
    }
  }

  /// Notes its own process, that of a child in its group and that of one that left it, and answers nothing.
  private static let family = #"""
    #!/bin/sh
    sleep 1000 >/dev/null &
    child=$!
    setsid sleep 1001 >/dev/null &
    echo "$$ $child $!" >>"$1/family"
    read -r ask
    [ -z "$2" ] || echo 'no answer'
    while read -r ask; do :; done
    """#

  /// The members of the first family, once they are there.
  private func family(_ place: EventPlace) throws -> [Int32] {
    let file = place.told + "/family"
    try #require(eventually { readText(file).contains("\n") })
    let first = try #require(readText(file).split(separator: "\n").first)
    let members = first.split(separator: " ").compactMap { Int32($0) }
    try #require(members.count == 3)
    return members
  }

  @Test("What a resolver started ends with it, and at the latest with its server", arguments: ["", "x"])
  func childrenEndWithIt(misbehaves: String) throws {
    let place = try EventPlace()
    try place.list("http://page.example/1\n  resolver=r\n  out=film.mp4\n")
    let script = try program(place, "family", Self.family)
    try place.mount("--resolver", "r=\(script) \(place.told) \(misbehaves)", "--timeout", "3")
    #expect(try Command.run(["cat", place.mountpoint + "/film.mp4"], timeout: 30).status != 0)
    let members = try family(place)
    if misbehaves.isEmpty {
      #expect(members.allSatisfy(Processes.isAlive))
    } else {
      #expect(eventually { !Processes.isAlive(members[0]) && !Processes.isAlive(members[1]) })
    }
    let launcher = try #require(place.launcher)
    #expect(Processes.isAlive(launcher))
    try place.unmount()
    #expect(eventually { !([launcher] + members).contains(where: Processes.isAlive) })
  }

  /// In a server's place: has a launcher ask a resolver, and end it once there is a file.
  private static let endingServer = #"""
    import os, socket, struct, subprocess, sys, time
    mediafs, resolver, end = sys.argv[1:]
    options = os.memfd_create('options')
    pairs = [('mountpoint', '/m'), ('manifest', '/list'), ('resolver', resolver)]
    text = b'mediafs\x01' + b''.join(struct.pack('<I', len(one)) + one.encode() for pair in pairs for one in pair)
    os.write(options, text)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = ['mediafs', 'launch', '--server-fd', str(theirs.fileno()), '--options-fd', str(options)]
    subprocess.Popen(words, executable=mediafs, pass_fds=[theirs.fileno(), options], stdin=subprocess.DEVNULL)
    theirs.close()
    ours.send(b'\x02r\0{}\0')
    while not os.path.exists(end): time.sleep(0.01)
    ours.send(b'\x03r\0')
    time.sleep(1000)
    """#

  /// The server waits a minute for an answer, and then gives this order.
  @Test func childrenEndWithTheRunThatIsEndedAtItsLimit() throws {
    let place = try EventPlace()
    let script = try program(place, "family", Self.family)
    let server = try BackgroundProcess([
      "/usr/bin/python3", "-c", Self.endingServer, place.place.mediafs, "r=\(script) \(place.told)",
      place.told + "/end",
    ])
    defer { server.signal(SIGKILL) }
    let members = try family(place)
    #expect(members.allSatisfy(Processes.isAlive))
    try place.place.write("", to: place.told + "/end")
    #expect(eventually { !Processes.isAlive(members[0]) && !Processes.isAlive(members[1]) })
    server.signal(SIGKILL)
    #expect(eventually { !members.contains(where: Processes.isAlive) })
  }

  @Test func whatIsNoResolverIsRefusedAtTheMount() throws {
    let place = try EventPlace()
    for (words, status) in [
      (["--resolver", "a b=/bin/cat"], 2), (["--resolver", "/bin/cat"], 2), (["--resolver", "a="], 2),
      (["--resolver", "a=/bin/cat", "--resolver", "a=/bin/cat"], 2),
      (["--resolver", "a=/bin/cat", "--resolve", "b"], 2), (["--resolve", "a b"], 2),
      (["--resolver", "a=\(place.folder)/none"], 1),
    ] as [([String], Int32)] {
      let mounted = try place.mediafs(["mount", place.mountpoint, "--manifest", place.manifest] + words)
      #expect(mounted.status == status, "\(words): \(mounted)")
    }
  }

  /// A page of our own, looked up by `command` in the place of yt-dlp.
  private func looksUp(_ command: String, _ origin: Origin, isFlat: Bool = false) throws {
    let place = try EventPlace()
    origin.add("/secret-way/film.mp4", size: Self.size)
    let page = "<html><head><title>A talk</title></head><video src=\"/secret-way/film.mp4\"></video></html>"
    origin.set("/watch", OriginResource(bytes: Array(page.utf8), type: "text/html"))
    let resolver = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appending(path: "Resolvers/mediafs-resolve-ytdlp").path
    // As a user writes it, or as yt-dlp --flat-playlist prints it.
    let flat =
      #"{"_type":"url","id":"1","title":"film.mp4","ie_key":"Generic","url":"\#(origin.url("/watch"))"}"#
    let source = origin.url("/watch?private=geheim")
    try place.list(isFlat ? flat + "\n" : "\(source)\n  resolver=ytdlp\n  out=film.mp4\n")
    try place.mount("--resolver", "ytdlp=\(resolver) --program \(command)", "--timeout", "60")
    try expectWhole(place)
    try place.unmount()
  }

  @Test func theResolverOfYtdlpGivesTheLinkOfAPage() throws {
    try withOrigin { origin in
      try withTemporaryFolder(open: true) { folder in
        let found =
          #"{"_type":"video","url":"\#(origin.url("/secret-way/film.mp4"))","protocol":"http","#
          + #""http_headers":{"Accept-Encoding":"gzip","X-A":"1"},"cookies":"c=1; Domain=.h; Path=/"}"#
        let stand = try folder.write(
          "#!/bin/sh\necho \"$*\" >\(folder.path)/words\ncat >\(folder.path)/urls\necho '\(found)'\n", to: "yt-dlp")
        try #require(chmod(stand, 0o755) == 0)
        try looksUp(stand, origin)
        let request = try #require(origin.log.entries(of: "/secret-way/film.mp4").first?.request)
        #expect(request.header("X-A") == "1" && request.header("Cookie") == "c=1")
        // Every user sees a program's arguments.
        #expect(readText(folder.file("urls")) == origin.url("/watch?private=geheim") + "\n")
        #expect(readText(folder.file("words")).contains("-J") && !readText(folder.file("words")).contains("geheim"))
      }
    }
  }

  /// The one in PATH, or what `make test-deps` brought.
  private static let ytdlp: String? = {
    let brought = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appending(path: ".build/venv/bin/yt-dlp").path
    return ["yt-dlp", brought].first { (try? Command.run([$0, "--version"]).status) == 0 }
  }()

  @Test(.enabled(if: ytdlp != nil, "This machine has no yt-dlp: make test-deps brings it from PyPI"))
  func aRealYtdlpGivesTheLinkOfAPage() throws {
    let ytdlp = try #require(Self.ytdlp)
    for isFlat in [false, true] { try withOrigin { origin in try looksUp(ytdlp, origin, isFlat: isFlat) } }
  }
}
