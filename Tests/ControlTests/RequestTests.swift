import Base
import Glibc
import TestSupport
import Testing

@testable import Control

@Suite struct RequestTests {
  @Test func helloTellsWhoServes() throws {
    let server = try RunningServer()
    let identity = try server.connect().hello()
    #expect(identity == ServerIdentity(pid: getpid(), mountpoint: "/media", program: "test"))
  }

  @Test func aStoreDeeperThanAnAddressHasRoomForIsServed() throws {
    let server = try RunningServer(depth: 4)
    #expect(server.folder.path.utf8.count > 108)
    #expect(try server.connect().hello().program == "test")
  }

  @Test func onlyTheOwnerCanOpenTheSocket() throws {
    let server = try RunningServer()
    var status = stat()
    try #require(lstat(server.folder.path + "/control", &status) == 0)
    #expect(status.st_mode & S_IFMT == S_IFSOCK)
    #expect(status.st_mode & 0o777 == 0o600)
  }

  @Test func statusComesInPagesAndInOrder() throws {
    let files = (0..<1234).map {
      FileStatus(
        path: "folder/\($0) \"ü\u{1F3B5}\".mp3", state: .partial, stored: 5, size: $0 == 7 ? nil : 10,
        ranges: [[0, 2], [7, 10]], rate: 1.5, transfers: 1, error: "it\nfailed", advice: "wait")
    }
    let server = try RunningServer(files)
    let client = try server.connect()
    let totals = try client.totals(StatusQuery())
    #expect(totals.files == 1234)
    #expect(totals.unknownSizes == 1)
    #expect(totals.size == 12330)
    var seen: [FileStatus] = []
    var query = StatusQuery()
    repeat {
      let page = try client.page(query)
      #expect(page.files.count <= ControlLimits.page)
      seen += page.files
      query.after = page.next
    } while query.after != nil
    #expect(seen == files)
    #expect(server.handler.state.withLock { $0.queries.map(\.after) } == [nil, "500", "1000"])
  }

  /// Files of which nothing is stored come many to a line, between the others, and only to who asks for that.
  @Test func untouchedFilesShareLines() throws {
    let long = String(repeating: "\u{1}", count: 4000)  // six bytes of JSON each
    let files = (0..<490).map { number in
      switch number {
      case 100, 101: FileStatus(path: "\(number)", state: .partial, stored: 5, size: 10)
      case 200...260: FileStatus(path: "\(number)\(long)", size: 7, waitsFor: .reader)
      default:
        FileStatus(
          path: "folder/\(number) \"ü\u{1F3B5}\".mp3", size: number % 3 == 0 ? nil : Int64(number), waitsFor: .reader)
      }
    }
    let server = try RunningServer(files)
    #expect(try server.connect().page(StatusQuery()).files == files)
    for (key, lines) in [("brief", 6), ("unknown", 491)] {
      var peer = try RawPeer(server.folder.path)
      try peer.say("{\"version\":1,\"request\":\"status\",\"\(key)\":true}\n")
      var seen = 0
      var kind: ControlReply.Kind?
      while kind != .done {
        kind = try #require(try peer.reply()).reply
        seen += 1
      }
      // Up to the partial ones, those, and what follows in as many messages as it needs; the last line is `done`.
      #expect(seen == lines, "\(key)")
    }
  }

  @Test func jsonByHandIsTheCodableForm() throws {
    let every = String(decoding: (0..<128).map { UInt8($0) }, as: UTF8.self) + "ü\u{1F3B5}\u{2028}/"
    let files = [
      FileStatus(path: ""), FileStatus(path: every, size: .max), FileStatus(path: "a", rate: .infinity),
      FileStatus(
        path: "\"\\", state: .modified, stored: 5, size: 0, ranges: [[0, 2], [7, .max]], rate: 1.5, transfers: 3,
        error: every, errorAge: 7, waitsFor: .origin, waitsUntil: .max, advice: "\n"),
      FileStatus(path: "b", state: .failed, ranges: [[1, 2]], rate: 1e300), FileStatus(path: "c", rate: 1e-7),
    ].flatMap { file in
      var film = file
      (film.duration, film.holdsTo, film.playsFrom) = (7200, 12.5, 0)
      var read = file
      read.opens = 2
      read.readers = [
        ReaderStatus(pid: 7, process: every, position: .max, pace: 1.5, waited: 0.1, waitsFor: .line),
        ReaderStatus(pid: nil, process: nil, position: 0),
      ]
      return [file, film, read]
    }
    for file in files {
      var bytes: [UInt8] = []
      file.appendJSON(to: &bytes)
      var expected = file
      if !file.rate.isFinite { expected.rate = 0 }
      #expect(try decodeLine(FileStatus.self, bytes) == expected)
      // Every key is there, null or not, and in the encoder's order.
      let encoded = try encodeLine(file)
      func keys(_ bytes: [UInt8]) -> [Substring] {
        String(decoding: bytes, as: UTF8.self).matches(of: #/"([a-zA-Z]+)":/#).map(\.1)
      }
      #expect(keys(bytes) == keys(encoded) && keys(bytes).count == 20 + 6 * (file.readers?.count ?? 0))
    }
  }

  @Test func readinessIsToldForEachFile() throws {
    let server = try RunningServer([FileStatus(path: "a.mp4"), FileStatus(path: "b.mp4")])
    var stalls = FileReadiness(path: "a.mp4", state: .partial, stored: 5)
    (stalls.playsThrough, stalls.from, stalls.stallsAt, stalls.readyIn) = (false, 12.5, 60, 20)
    let unknown = FileReadiness(path: "b.mp4", state: .remote)
    server.handler.state.withLock { $0.ready = [stalls, unknown] }
    let client = try server.connect()
    #expect(try client.readiness([""], from: 12.5) == [stalls, unknown])
    #expect(try client.readiness(["b.mp4"], from: nil) == [unknown])
    #expect(server.handler.state.withLock { $0.asked } == [12.5, nil])
    for wrong in [-1, 1e10] {
      #expect(throws: ControlFailure.self) { try client.readiness(["a.mp4"], from: wrong) }
    }
    #expect(throws: ControlFailure.self) { try client.readiness([], from: nil) }
    #expect(try client.readiness(["a.mp4"], from: nil) == [stalls], "the connection is good for the next request")
  }

  @Test func aPathThatIsNotThereIsSaid() throws {
    let server = try RunningServer([FileStatus(path: "a.mp3")])
    let client = try server.connect()
    #expect(throws: ControlFailure(.notFound, "there is no b.mp3 in the mount")) {
      try client.page(StatusQuery(paths: ["b.mp3"]))
    }
    // The connection is good for the next request.
    #expect(try client.page(StatusQuery(paths: ["a.mp3"])).files.map(\.path) == ["a.mp3"])
  }

  @Test func pathsReachTheHandlerNormal() throws {
    let server = try RunningServer([FileStatus(path: "a/b.mp3")])
    let client = try server.connect()
    _ = try client.page(StatusQuery(paths: ["/a//./b.mp3/"]))
    #expect(server.handler.state.withLock { $0.queries.last?.paths } == ["a/b.mp3"])
    #expect(throws: ControlFailure(.malformed, "a path contains \"..\" or NUL")) {
      try client.clear(ClearOrder(.at(["a/../b"])))
    }
    #expect(throws: ControlFailure(.malformed, "a path contains \"..\" or NUL")) {
      try client.clear(ClearOrder(.at(["a\0"])))
    }
    #expect(server.handler.state.withLock { $0.cleared.isEmpty })
  }

  @Test func aPatternKeepsTheSlashThatBindsItToTheRoot() throws {
    let server = try RunningServer([FileStatus(path: "a/b.mp3")])
    let client = try server.connect()
    for path in ["/*.mp3", "*.mp3", "//./*.mp3/", "/a/*.mp3", "/", "a"] { _ = try? client.rule(.keep, [path]) }
    let heard = server.handler.state.withLock { $0.ruled.map(\.paths) }
    #expect(heard == [["/*.mp3"], ["*.mp3"], ["/*.mp3"], ["a/*.mp3"], [""], ["a"]])
    _ = try client.page(StatusQuery(paths: ["/a"]))
    #expect(server.handler.state.withLock { $0.queries.last?.paths } == ["a"])
  }

  @Test func aFileInManyPiecesFitsAMessage() throws {
    let end = Int64.max
    let ranges = (0..<20_000).map { _ in [end - 1, end] }
    let server = try RunningServer([FileStatus(path: "a", state: .partial, ranges: ranges)])
    let page = try server.connect().page(StatusQuery())
    #expect(page.files.first?.ranges.count == ControlLimits.ranges)
  }

  @Test func aFetchIsFollowedToItsEnd() throws {
    let server = try RunningServer([FileStatus(path: "d/a"), FileStatus(path: "d/b"), FileStatus(path: "c")])
    server.handler.state.withLock {
      $0.steps["d/a"] = [
        FetchProgress(path: "d/a", state: .partial, stored: 10, rate: 5),
        FetchProgress(path: "d/a", state: .partial, stored: 60, size: 100, rate: 50),
        FetchProgress(path: "d/a", state: .complete, stored: 100, size: 100, rate: 50),
      ]
      $0.steps["d/b"] = [
        FetchProgress(path: "d/b", state: .partial, stored: 0),
        FetchProgress(path: "d/b", state: .failed, stored: 0, error: "404", advice: "mend the URL"),
      ]
    }
    var reports: [FetchReport] = []
    let last = try server.connect().fetch(["d"], wait: true) {
      reports.append($0)
      return true
    }
    #expect(reports.count == 3)
    #expect(reports[0].stored == 10)
    #expect(reports[0].rate == 5)
    #expect(reports[0].unknownSizes == 2)
    #expect(reports[1].size == 100)
    #expect(reports[1].failed == 1)
    #expect(reports[1].changes.map(\.path).sorted() == ["d/a", "d/b"])
    #expect(last.complete == 1)
    #expect(last.failed == 1)
    #expect(last.stored == 100)
    #expect(last.rate == 0)
    #expect(last.changes.map(\.path) == ["d/a"])
  }

  @Test func manyFilesOverAtOnceFitTheMessages() throws {
    let paths = (0..<900).map { String(repeating: "\"", count: 4000) + "\($0)" }
    let server = try RunningServer(paths.map { FileStatus(path: $0) })
    server.handler.state.withLock { state in
      for path in paths { state.steps[path] = [FetchProgress(path: path, state: .complete, stored: 1, size: 1)] }
    }
    var seen: [String] = []
    let last = try server.connect().fetch([""], wait: true) {
      seen += $0.changes.map(\.path)
      return true
    }
    #expect(seen == paths)
    #expect(last.complete == 900)
  }

  @Test func aFetchNeedNotBeWaitedFor() throws {
    let server = try RunningServer([FileStatus(path: "a")])
    let report = try server.connect().fetch(["a"], wait: false)
    #expect(report.files == 1)
    #expect(!report.isOver)
  }

  @Test func clearTellsWhatItDidAndKept() throws {
    let server = try RunningServer()
    let client = try server.connect()
    let report = try client.clear(ClearOrder(.at(["a", "b"]), isForced: true))
    #expect(report.bytes == 300)
    #expect(report.kept == [.init(path: "mine.mp3", reason: "you changed it")])
    _ = try client.clear(ClearOrder(.all, isDryRun: true))
    _ = try client.clear(ClearOrder(.unlisted))
    #expect(
      server.handler.state.withLock { $0.cleared } == [
        ClearOrder(.at(["a", "b"]), isForced: true), ClearOrder(.all, isDryRun: true), ClearOrder(.unlisted),
      ])
  }

  @Test func anUpgradeIsAgreedToThenTheServerEnds() throws {
    let server = try RunningServer()
    let client = try server.connect()
    #expect(try client.upgradeFacts().facts == server.handler.upgradeFacts)
    let program = ProgramFile(device: 7, inode: .max)
    server.handler.state.withLock { $0.refusal = "another path" }
    #expect(throws: ControlFailure(.failed, "another path")) { try client.upgrade(to: program) }
    #expect(server.handler.state.withLock { !$0.handedOver })
    server.handler.state.withLock { $0.refusal = nil }
    try client.upgrade(to: program)
    server.listener.stop()
    #expect(server.handler.state.withLock { $0.handedOver && $0.upgrades == [program] })
  }

  @Test func anotherFormatTakesAnUnmount() {
    let own = ServerFormats(helper: 3, memory: 1, store: 2)
    #expect(own.objection(to: own) == nil)
    #expect(own.objection(to: ServerFormats(helper: 3, memory: 1, store: 1)) == nil)  // it raises the store
    for (other, what) in [
      (ServerFormats(helper: 2, memory: 1, store: 2), "version 2 of the mount helper's protocol"),
      (ServerFormats(helper: 3, memory: 2, store: 2), "version 2 of the memory of the mount"),
      (ServerFormats(helper: 3, memory: 1, store: 3), "version 3 of the store's format"),
    ] {
      let objection = own.objection(to: other) ?? ""
      #expect(objection.contains(what) && objection.contains("takes an unmount"), "\(objection)")
    }
  }

  @Test func stopIsAnsweredThenTheEndIsSeen() throws {
    let server = try RunningServer()
    let client = try server.connect()
    try client.stop()
    #expect(!client.waitForEnd(seconds: 0.02))
    #expect(server.handler.state.withLock { $0.stopped })
    server.listener.stop()
    #expect(client.waitForEnd(seconds: 10))
    #expect(lstat(server.folder.path + "/control", UnsafeMutablePointer<stat>.allocate(capacity: 1)) != 0)
  }

  @Test func aClientThatLeavesEndsItsClear() throws {
    let server = try RunningServer()
    server.handler.state.withLock { $0.holdsClears = true }
    var request = ControlRequest(.clear)
    request.all = true
    do {
      let client = try server.connect()
      try client.send(request)
      #expect(eventually(timeout: 10) { server.handler.state.withLock { !$0.cleared.isEmpty } })
      sleep(seconds: 0.1)
      #expect(server.handler.state.withLock { $0.wasLeft } == nil, "a client that waits counts as gone")
    }
    #expect(eventually(timeout: 15) { server.handler.state.withLock { $0.wasLeft } == true })
  }
}
