import Base
import Control
import Glibc
import TestSupport
import Testing

@testable import Screen
@testable import mediafs

/// The screen of `mediafs top` as text, without a terminal.
@Suite struct TopTables {
  /// Runs `body` with the characters of a locale on this thread alone.
  static func withCharacters(_ name: String, _ body: (TopText) throws -> Void) rethrows {
    let former = uselocale(nil)
    defer { _ = uselocale(former) }
    let isUnicode = Characters.use(name)
    #expect(isUnicode == (name != "C"))
    try body(TopText(isUnicode: isUnicode))
  }

  static func state(_ files: [FileStatus] = TopTables.files, lines: [LineStatus] = TopTables.lines) -> TopState {
    var state = TopState(mounts: ["/home/anna/media"])
    state.connected(ServerIdentity(pid: 4242, mountpoint: "/home/anna/media", program: "mediafs 0.1.0"), 0)
    var totals = StatusTotals()
    (totals.files, totals.complete, totals.partial, totals.remote, totals.failed) = (1000, 1, 4, 994, 1)
    (totals.stored, totals.size) = (412 << 20, 90 << 30)
    state.totals = totals
    var active = StatusTotals()
    (active.files, active.rate, active.transfers) = (Int64(files.count), 3_355_443, 5)
    active.lines = lines
    for rate in stride(from: 0.0, through: 3_355_443, by: 400_000) {
      active.rate = rate
      state.update(active, files)
    }
    active.rate = 3_355_443
    state.update(active, files)
    return state
  }

  static let lines = [
    LineStatus(
      host: "https://media.example.org", rate: 2_936_013, transfers: 4, connections: 6, limit: 32, http: 1.1,
      roundTrip: 0.0384, errors: 0),
    LineStatus(
      host: "http://mirror.example.net:8080", transfers: 1, connections: 1, limit: 32, roundTrip: nil, errors: 12,
      error: "cannot connect", errorAge: 3, waitsUntil: 1_700_000_000),
  ]

  static let files: [FileStatus] = {
    var played = FileStatus(
      path: "films/A long film with a long name (2024).mkv", state: .partial, stored: 300 << 20, size: 1000 << 20,
      ranges: [[0, 250 << 20], [950 << 20, 1000 << 20]], rate: 1_572_864, transfers: 2)
    played.opens = 1
    played.readers = [ReaderStatus(pid: 77, process: "mpv", position: 200 << 20, pace: 1_048_576)]
    (played.duration, played.holdsTo) = (7200, 1800)
    var waiting = FileStatus(
      path: "films/waits.mp4", state: .partial, stored: 10 << 20, size: 100 << 20, ranges: [[0, 10 << 20]], rate: 0,
      transfers: 1)
    waiting.opens = 1
    waiting.readers = [ReaderStatus(pid: 78, process: "vlc", position: 60 << 20, waited: 2.1)]
    var complete = FileStatus(
      path: "music/song.flac", state: .complete, stored: 24 << 20, size: 24 << 20, ranges: [[0, 24 << 20]])
    complete.opens = 1
    return [
      played, waiting, complete,
      FileStatus(
        path: "talks/fetched.webm", state: .partial, stored: 78 << 20, size: 80 << 20, ranges: [[0, 78 << 20]],
        rate: 1_363_149, transfers: 2),
      FileStatus(
        path: "talks/away.webm", state: .remote, error: "no such host", errorAge: 12, waitsFor: .origin,
        waitsUntil: 1_700_000_000, advice: "nothing: mediafs tries again while the file is wanted"),
      FileStatus(path: "talks/later.webm", state: .remote, size: 1 << 30, waitsFor: .turn),
      FileStatus(path: "talks/gone.webm", state: .failed, error: "the server answered 404", errorAge: 60),
    ]
  }()

  static func screen(_ state: inout TopState, _ columns: Int, _ rows: Int, _ text: TopText, now: Double = 1000)
    -> [String]
  {
    TopLayout(columns: columns, rows: rows, text: text, clock: "12:30:05", now: now).lines(&state).map { line in
      var words = line.map(\.text).joined()
      while words.last == " " { words.removeLast() }
      return words
    }
  }

  /// The selected file tells the rules that apply to it.
  @Test func theDetailsTellTheRules() {
    Self.withCharacters("C") { text in
      var file = Self.files[0]
      (file.rule, file.downloads) = (AppliedRule(.keep, pattern: "films"), AppliedRule(.pause, pattern: ""))
      let lines = TopDetails(text: text).lines(file).map { $0.map(\.text).joined() }
      #expect(lines.contains("rule: keep (for films)"), "\(lines)")
      #expect(lines.contains("rule: pause (for the whole mount)"), "\(lines)")
    }
  }

  // MARK: The screen

  /// Every size is filled exactly, and nothing is wider than the screen, in every mode, with and without UTF-8.
  @Test(arguments: ["C.UTF-8", "C"]) func everySizeHolds(_ locale: String) throws {
    try Self.withCharacters(locale) { text in
      let odd = FileStatus(
        path: "宽字符/ファイル名 👩‍👩‍👧 e\u{301}\u{1B}[2J\u{202E}.mkv", state: .partial, stored: 5, size: 10, ranges: [[0, 5]])
      let modes: [TopState.Mode] = [
        .files, .help, .mounts, .filter(before: ""), .question("Delete the 宽字符 of something?", .clear(["x"])),
      ]
      let sizes = [1, 2, 3, 5, 8, 13, 20, 29, 39, 40, 50, 69, 80, 96, 120, 300]
      for columns in sizes {
        for rows in [1, 2, 3, 4, 6, 8, 13, 14, 18, 24, 30, 40, 100] {
          var state = Self.state(Self.files + [odd])
          state.filter = rows % 2 == 0 ? "" : "f"
          state.arrange()
          state.mode = modes[(columns + rows) % modes.count]
          let lines = TopLayout(columns: columns, rows: rows, text: text, clock: "12:30:05", now: 1).lines(&state)
          try #require(lines.count == rows, "\(columns)x\(rows)")
          for line in lines {
            let width = line.reduce(0) { $0 + text.width($1.text) }
            try #require(width <= columns, "\(columns)x\(rows): \(line.map(\.text).joined())")
            try #require(line.allSatisfy { $0.text.unicodeScalars.allSatisfy { Characters.width($0) != nil } })
            if locale == "C" { try #require(line.allSatisfy { $0.text.utf8.allSatisfy { 0x20..<0x7F ~= $0 } }) }
          }
        }
      }
    }
  }

  @Test("A mount that shares has a row for its store") func theStoreHasARow() {
    Self.withCharacters("C") { text in
      var state = Self.state()
      state.totals?.mount = MountFacts(store: "/s", library: "/s/library", list: nil, log: nil)
      #expect(!Self.screen(&state, 80, 24, text).contains { $0.contains("shares") })
      state.totals?.mount?.share = "s3://b/p: up, lease in hand (0 to 64 MiB of a.mkv)"
      #expect(Self.screen(&state, 80, 24, text)[3] == " shares s3://b/p: up, lease in hand (0 to 64 MiB of a.mkv)")
      let narrow = Self.screen(&state, 40, 24, text)
      #expect(narrow.count == 24 && narrow[3].hasPrefix(" shares s3://b/p: up") && narrow[3].count < 40)
    }
  }

  @Test func eightyByTwentyFour() {
    Self.withCharacters("C.UTF-8") { text in
      var state = Self.state()
      #expect(Self.screen(&state, 80, 24, text).joined(separator: "\n") == Self.expected)
    }
    Self.withCharacters("C") { text in
      var state = Self.state()
      _ = state.type(.end, 0)
      #expect(Self.screen(&state, 100, 24, text).joined(separator: "\n") == Self.expectedPlain)
    }
  }
  private static let expected = """
     mediafs top  /home/anna/media                          mediafs 0.1.0  12:30:05
     ↓ 2.80 MiB/s · 5 transfers · 7 active files · 2 readers · 1 waiting ██████████
     412 MiB stored of 90.0 GiB · 1000 files · 1 failed · 1 complete · 4 partial · …
     LINE                                              RATE    CONN  LATENCY ERRORS
     http://mirror.example.net:8080                       –     1/1        ?     12
     https://media.example.org                   2.80 MiB/s     4/6    38 ms      0
      FILE                     STORED                     RATE  ACTIVITY▾
    ▸ films/waits.mp4          ━╍─────●─────   10%              vlc waits 3s
      A long film… (2024).mkv  ━━●╍────────╍   30%  1.50 MiB/s  mpv 1.00 MiB/s
      talks/fetched.webm       ━━━━━━━━━━━━╍   97%  1.30 MiB/s  downloads
      talks/away.webm          ─────────────                    retries: no such ho…
      talks/gone.webm          ─────────────                    failed: the server …
      talks/later.webm         ─────────────    0%              waits for its turn
      music/song.flac          ━━━━━━━━━━━━━  100%              complete, open



    ────────────────────────────────────────────────────────────────────── 1 of 7 ──
     films/waits.mp4  partial
     10.0 MiB of 100 MiB stored · 1 transfer
     vlc (78) at 60.0 MiB, waits 3s for bytes that are on the way


     f fetch  k keep  p pause  c clear  s sort  / filter  a all  h help  q quit
    """
  private static let expectedPlain = """
     mediafs top  /home/anna/media                                              mediafs 0.1.0  12:30:05
     in 2.80 MiB/s, 5 transfers, 7 active files, 2 readers, 1 waiting                        @@@@@@@@@@
     412 MiB stored of 90.0 GiB, 1000 files, 1 failed, 1 complete, 4 partial, 994 remote
     LINE                                                    RATE    CONN  LATENCY ERRORS
     http://mirror.example.net:8080                             -     1/1        ?     12  no answer, n~
     https://media.example.org                         2.80 MiB/s     4/6    38 ms      0
      FILE                         STORED                      SIZE        RATE  ACTIVITYv
      films/waits.mp4              #+.......@......   10%   100 MiB              vlc waits 3s
      A long film w~me (2024).mkv  ###@...........+   30%  0.98 GiB  1.50 MiB/s  mpv 1.00 MiB/s
      talks/fetched.webm           ###############+   97%  80.0 MiB  1.30 MiB/s  downloads
      talks/away.webm              ................               ?              retries: no such host
      talks/gone.webm              ................               ?              failed: the server ans~
      talks/later.webm             ................    0%  1.00 GiB              waits for its turn
    > music/song.flac              ################  100%  24.0 MiB              complete, open



    ------------------------------------------------------------------------------------------ 7 of 7 --
     music/song.flac  complete
     24.0 MiB of 24.0 MiB stored



     f fetch  k keep  p pause  c clear  s sort  / filter  a all  h help  q quit
    """

  @Test func namesAndWordsAreSafe() {
    Self.withCharacters("C.UTF-8") { text in
      #expect(text.safe("a\u{1B}[2Jb\u{7}\n\u{9B}\u{202E}c") == #"a\u{1b}[2Jb\u{7}\u{a}\u{9b}\u{202e}c"#)
      #expect(text.safe("e\u{301}\u{1F468}\u{200D}\u{1F469}") == "e\u{301}\u{1F468}\u{200D}\u{1F469}")
      #expect(text.safe("\u{E0FFF}x\u{FFFFF}").hasSuffix("x?") || text.safe("\u{FFFFF}") == "\u{FFFFF}")
    }
    Self.withCharacters("C") { text in
      #expect(text.safe("für 宽\u{1B}") == #"f?r ?\u{1b}"#)
    }
  }

  @Test func widthsAreThoseOfTheTerminal() {
    Self.withCharacters("C.UTF-8") { text in
      #expect(text.width("abc") == 3 && text.width("宽字") == 4 && text.width("e\u{301}") == 1)
      #expect(text.cut("宽字符号", 5) == "宽字…" && text.cut("宽字符号", 6) == "宽字…" && text.cut("宽字", 4) == "宽字")
      #expect(
        text.fit("films/a long name.mkv", 11) == "films….mkv" || text.width(text.fit("films/a long name.mkv", 11)) == 11
      )
      #expect(text.fit("宽字符号文件.mkv", 9).hasSuffix("mkv"))
      #expect(text.column("宽", 4) == "宽  " && text.column("宽", 4, right: true) == "  宽")
      for columns in 0..<12 {
        #expect(text.width(text.cut("a宽b字c符", columns)) <= columns)
        #expect(text.width(text.fit("a宽b字c符d号", columns)) <= columns)
        #expect(text.width(text.column("a宽b字c符", columns)) == columns)
      }
    }
  }

  @Test func pathsKeepTheirNames() {
    Self.withCharacters("C.UTF-8") { text in
      let path = "shows/A long show/Season 1/Episode 2.mkv"
      #expect(text.path(path, 40) == path && text.path(path, 39) == "…/A long show/Season 1/Episode 2.mkv")
      #expect(text.path(path, 25) == "…/Season 1/Episode 2.mkv" && text.path(path, 16) == "…/Episode 2.mkv")
      #expect(text.path(path, 10) == "Epis…2.mkv" || text.width(text.path(path, 10)) == 10)
      #expect(text.path("///", 2) == "/…")
    }
  }

  /// Root asks servers of other users: whatever they say, the view goes on.
  @Test(arguments: [Int64.min, -1, 0, 1, Int64.max]) func whateverAServerSays(_ number: Int64) throws {
    let real = Double(number) * 1e280
    var file = FileStatus(
      path: String(repeating: "/", count: 100_000), state: .partial, stored: number,
      size: number == 0 ? nil : ~number,
      ranges: [[number, .max], [.min, number], [number]], rate: real, transfers: Int(number), error: "\u{1B}]0;x\u{7}",
      errorAge: number, waitsFor: .origin, waitsUntil: number, advice: String(repeating: "e\u{301}", count: 100_000))
    file.readers = [
      ReaderStatus(pid: Int32.min, process: "\u{1B}[2J", position: number, pace: real, waited: real, waitsFor: .turn),
      ReaderStatus(pid: nil, process: nil, position: ~number, pace: -real),
    ]
    (file.opens, file.duration, file.holdsTo) = (number, real, -real)
    let line = LineStatus(
      host: "\u{9B}2J", rate: real, transfers: Int(number), connections: Int(number), limit: Int(number), http: real,
      roundTrip: real, errors: number, error: "", errorAge: number, waitsUntil: number)
    var other = file
    (other.path, other.size, other.state) = ("b", .max, .failed)
    Self.withCharacters("C.UTF-8") { text in
      var state = Self.state([file, other, file], lines: [line, line])
      var sums = StatusTotals()
      (sums.files, sums.stored, sums.size, sums.rate, sums.failed) = (number, number, number, real, number)
      (state.totals, sums.lines) = (sums, [line, line])
      for (columns, rows) in [(80, 24), (300, 100), (20, 5)] {
        for _ in TopState.Order.allCases {
          _ = state.type(.character("s"), 0)
          state.update(sums, [file, other, file])
          _ = state.type(.down, 0)
          #expect(
            Self.screen(&state, columns, rows, text).allSatisfy { !$0.contains("\u{1B}") && !$0.contains("\u{9B}") })
        }
      }
    }
  }

  // MARK: Bars

  @Test func barsShowWhatIsStored() {
    func bar(_ ranges: [[Int64]], _ size: Int64?, _ cells: Int, at places: [Int64] = []) -> String {
      var file = FileStatus(path: "a", state: .partial, size: size, ranges: ranges)
      file.readers = places.map { ReaderStatus(pid: 1, process: "a", position: $0) }
      return TopBar(file, cells: cells).spans(TopText(isUnicode: false), isDim: false).map(\.text).joined()
    }
    #expect(bar([[0, 50]], 100, 10) == "#####.....")
    #expect(bar([[0, 55], [99, 100]], 100, 10) == "#####+...+")
    #expect(bar([[20, 100]], 100, 10, at: [0, 55, 100]) == "@.###@###@")
    #expect(bar([[0, 3]], 3, 10) == "##########" && bar([[1, 2]], 3, 9) == "...###...")
    #expect(bar([], nil, 5) == "....." && bar([[0, 5]], 0, 5) == "....." && bar([[0, 5]], 10, 0) == "")
    // Whatever a server says.
    let wild: [[Int64]] = [[5, 1], [-9, .max], [.max, .max], [1], [], [1, 2, 3], [.min, 7], [90, 1000]]
    #expect(bar(wild, 100, 10, at: [.min, .max, -1]) == "#########@")
    #expect(bar([[0, .max]], .max, 300, at: [.max]).count == 300)
  }

  // MARK: Keys

  @Test func selectionFollowsTheFile() {
    var state = Self.state()
    #expect(state.selected == "films/waits.mp4", "what waits comes first")
    #expect(state.type(.down, 0) == nil && state.selected == Self.files[0].path)
    var others = Self.files
    others.removeFirst(2)
    state.update(state.active ?? StatusTotals(), others)
    #expect(state.selection == 1, "one that is gone leaves its place to the next")
    for key in [Key.end, .down, .pageDown] { _ = state.type(key, 0) }
    #expect(state.selection == state.files.count - 1)
    for key in [Key.home, .up, .pageUp] { _ = state.type(key, 0) }
    #expect(state.selection == 0)
    state.update(StatusTotals(), [])
    #expect(state.selected == nil && state.type(.down, 0) == nil && state.type(.character("f"), 0) == nil)
  }

  /// Their names differ in their normalization alone, so they are two files.
  @Test func filesThatLookAlikeAreTwo() {
    let names = ["caf\u{E9}.mp4", "cafe\u{301}.mp4", "z.mp4"]
    var state = Self.state(names.map { FileStatus(path: $0, state: .partial, stored: 1, size: 10) })
    _ = state.type(.home, 0)
    var selected: Set<[UInt8]> = []
    for _ in names {
      selected.insert(Array((state.selectedFile?.path ?? "").utf8))
      _ = state.type(.down, 0)
    }
    #expect(selected == Set(names.map { Array($0.utf8) }))
  }

  @Test func aThousandFilesScroll() throws {
    let files = (0..<1000).map { FileStatus(path: "f\(1000 + $0)", state: .partial, stored: Int64($0), size: 1000) }
    var state = Self.state(files)
    Self.withCharacters("C") { text in
      func seen() -> [String] {
        Self.screen(&state, 80, 24, text).compactMap { line in
          line.split(separator: " ").first { $0.hasPrefix("f1") }.map(String.init)
        }.filter { $0.count == 5 }
      }
      #expect(seen().first == "f1000")
      for _ in 0..<500 { _ = state.type(.down, 0) }
      #expect(seen().contains("f1500") && state.selected == "f1500")
      _ = state.type(.end, 0)
      #expect(seen().contains("f1999"))
      // A smaller screen still shows what is selected.
      #expect(Self.screen(&state, 80, 10, text).contains { $0.contains("f1999") })
      _ = state.type(.home, 0)
      #expect(seen().first == "f1000")
    }
  }

  @Test func filesAreSortedAndTheirOrderTurns() {
    var state = Self.state()
    func paths() -> [String] { state.files.map { String($0.path.split(separator: "/").last ?? "") } }
    #expect(
      paths() == [
        "waits.mp4", Self.files[0].path.split(separator: "/").last.map(String.init) ?? "", "fetched.webm", "away.webm",
        "gone.webm", "later.webm", "song.flac",
      ])
    _ = state.type(.character("s"), 0)
    #expect(state.order == .name && state.files.map(\.path) == Self.files.map(\.path).sorted())
    _ = state.type(.character("S"), 0)
    #expect(state.files.map(\.path) == Self.files.map(\.path).sorted().reversed())
    _ = state.type(.character("S"), 0)
    _ = state.type(.character("s"), 0)
    #expect(state.order == .rate && state.files.first?.rate == 1_572_864)
    _ = state.type(.character("s"), 0)
    #expect(state.order == .stored && state.files.first?.state == .complete)
    _ = state.type(.character("s"), 0)
    #expect(state.order == .size && state.files.first?.size == 1 << 30)
    _ = state.type(.character("s"), 0)
    #expect(state.order == .activity)
  }

  @Test func aFilterIsTypedKeptAndGivenUp() {
    var state = Self.state()
    for key in "/TALK" { _ = state.type(.character(key.unicodeScalars.first ?? " "), 0) }
    #expect(state.filter == "TALK" && state.files.count == 4)
    _ = state.type(.backspace, 0)
    #expect(state.filter == "TAL")
    _ = state.type(.enter, 0)
    #expect(state.mode == .files && state.files.count == 4)
    // While it is typed, q is a letter.
    _ = state.type(.character("/"), 0)
    #expect(state.type(.character("q"), 0) == nil && state.files.isEmpty)
    _ = state.type(.character("\u{1B}"), 0)
    #expect(state.filter == "TAL" && state.mode == .files)
    _ = state.type(.character("\u{1B}"), 0)
    #expect(state.filter.isEmpty && state.files.count == Self.files.count)
  }

  @Test func keysAskTheServer() {
    var state = Self.state()
    let path = "films/waits.mp4"
    for (key, request) in [
      ("f", TopRequest.fetch([path])), ("k", .rule(.keep, [path])), ("u", .rule(.auto, [path])),
      ("o", .rule(.online, [path])), ("p", .rule(.pause, [path])), ("r", .rule(.resume, [path])),
      ("P", .rule(.pause, [""])), ("R", .rule(.resume, [""])),
    ] {
      #expect(state.type(.character(key.unicodeScalars.first ?? " "), 0) == .ask(request))
    }
    // Only y clears.
    for key in [Key.character("n"), .enter, .character("c"), .other] {
      #expect(state.type(.character("c"), 0) == nil)
      guard case .question(let words, _) = state.mode else {
        Issue.record("nothing is asked")
        continue
      }
      #expect(words.contains("10.0 MiB") && words.contains(path))
      #expect(state.type(key, 0) == nil && state.mode == .files)
    }
    _ = state.type(.character("c"), 0)
    #expect(state.type(.character("y"), 0) == .ask(.clear([path])))
    #expect(state.type(.character("q"), 0) == .quit)
    #expect(state.type(.character("a"), 0) == .listAll(true) && state.showsAll)
    #expect(state.type(.character("a"), 0) == .listAll(false))
    #expect(state.type(.character("h"), 0) == nil && state.mode == .help)
    #expect(state.type(.character("q"), 0) == nil && state.mode == .files, "a key leaves the help")
  }

  @Test func allFilesAreShownOnce() {
    var state = Self.state()
    _ = state.type(.character("a"), 0)
    state.list(Self.files + [FileStatus(path: "rest", state: .complete)], isWhole: true)
    #expect(state.files.count == Self.files.count + 1)
    _ = state.type(.character("a"), 0)
    #expect(state.files.count == Self.files.count)
  }

  @Test func oneOfSeveralMountsIsChosen() {
    var state = TopState(mounts: ["/a", "/b", "/c"])
    #expect(state.mode == .mounts && state.mount == nil)
    Self.withCharacters("C") { text in
      #expect(Self.screen(&state, 40, 12, text).contains { $0.contains("> /a") })
      _ = state.type(.down, 0)
      #expect(Self.screen(&state, 40, 12, text).contains { $0.contains("> /b") })
      #expect(Self.screen(&state, 40, 6, text).count == 6)
    }
    for _ in 0..<9 { _ = state.type(.down, 0) }
    #expect(state.type(.enter, 0) == .show(2))
    state.show(2)
    #expect(state.mode == .files && state.mountpoint == "/c")
    _ = state.type(.character("m"), 0)
    #expect(state.mode == .mounts && state.type(.character("\u{1B}"), 0) == nil && state.mode == .files)
  }

  // MARK: Words

  @Test func anotherServerIsTold() {
    var state = Self.state()
    state.connected(ServerIdentity(pid: 5, mountpoint: "/home/anna/media", program: "mediafs 0.2.0"), 10)
    #expect(state.word(11)?.text == "mediafs 0.2.0 goes on")
    state.connected(ServerIdentity(pid: 6, mountpoint: "/home/anna/media", program: "mediafs 0.2.0"), 20)
    #expect(state.word(21)?.text == "another server goes on (process 6)")
    #expect(state.word(25) == nil, "words pass")
    state.link = .lost("the mount helper starts the next one")
    Self.withCharacters("C") { text in
      #expect(Self.screen(&state, 80, 24, text)[1] == " No server answers: the mount helper starts the next one")
    }
  }

  @Test func latencies() {
    #expect(LineRows.latency(0.0004) == "<1 ms" && LineRows.latency(0.0384) == "38 ms")
    #expect(LineRows.latency(1.25) == "1.3 s" && LineRows.latency(120) == "120 s")
    #expect(LineRows.latency(.infinity) == "?" && LineRows.latency(-1) == "?" && LineRows.latency(.nan) == "?")
  }
}
