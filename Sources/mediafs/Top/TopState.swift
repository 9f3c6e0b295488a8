import Control
import Screen

/// What the live view shows and what a person does with it. Pure: news and keys go in, orders and a screen come out.
struct TopState {
  /// How the files are sorted.
  enum Order: String, CaseIterable {
    /// Those that wait first, then those that are read, and those that come.
    case activity
    case name, rate, stored, size
  }

  /// What the keys mean at the moment.
  enum Mode: Equatable {
    case files
    /// The filter is typed; `before` comes back if it is given up.
    case filter(before: String)
    case help
    /// A question that `y` answers: what is asked, and what is ordered then.
    case question(String, TopRequest)
    /// Which of several mounts.
    case mounts
  }

  /// Whether a server answers.
  enum Link: Equatable {
    case none
    case answers
    /// Why not.
    case lost(String)
  }

  /// A word at the foot of the screen, until the time in seconds.
  struct Word: Equatable {
    var text: String
    var isError: Bool
    var until: Double
  }

  /// The files that were listed last, at most.
  static let most = 20_000

  /// The mountpoints to choose from.
  var mounts: [String]
  /// The index of the one that is shown; nil: none is chosen yet.
  var mount: Int?
  var link = Link.none
  /// The program and the process that serve.
  var server: ServerIdentity?
  /// Sums of the whole mount.
  var totals: StatusTotals?
  /// Sums of the files that something goes on with, with the lines.
  var active: StatusTotals?
  /// The lines, the busiest of many; a few keep their places.
  var lines: [LineStatus] {
    let lines = active?.lines ?? []
    return lines.count > 8 ? lines : lines.sorted { $0.host < $1.host }
  }
  /// Bytes a second that all lines bring; a server that tells no lines tells those of its files.
  var rate: Double {
    let rate = active?.lines.map { $0.reduce(0) { $0 + max(0, $1.rate) } } ?? active?.rate ?? 0
    return rate.isFinite ? max(0, rate) : 0
  }
  /// Bytes a second, one for each news.
  private(set) var history: [Double] = []
  private var activeFiles: [FileStatus] = []
  /// All of which something is known, if they are shown.
  private var listed: [FileStatus] = []
  private(set) var isListedWhole = true
  /// The files as they are shown: filtered and sorted.
  private(set) var files: [FileStatus] = []

  var mode = Mode.files
  var order = Order.activity
  var isReversed = false
  var filter = ""
  /// Whether files are shown with which nothing goes on.
  var showsAll = false
  /// The path of the selected file.
  private(set) var selected: String?
  /// The first file that is shown.
  var first = 0
  private var word: Word?
  /// Which entry of the choice of mounts is selected.
  private(set) var choice = 0
  /// How many files fit the screen: the layout tells.
  var page = 10

  init(mounts: [String]) {
    self.mounts = mounts
    if mounts.count == 1 { mount = 0 } else { mode = .mounts }
  }

  /// The path of the mount that is shown.
  var mountpoint: String { mount.map { mounts[$0] } ?? "" }
  /// The index of the selected file.
  var selection: Int? { selected.flatMap { path in files.firstIndex { $0.isAt(path) } } }
  var selectedFile: FileStatus? { selection.map { files[$0] } }

  /// The word at the foot, while it lasts.
  func word(_ now: Double) -> Word? { word.flatMap { now < $0.until ? $0 : nil } }

  mutating func say(_ text: String, isError: Bool = false, _ now: Double) {
    word = Word(text: text, isError: isError, until: now + (isError ? 10 : 4))
  }

  // MARK: News

  /// Another mount is shown from now on.
  mutating func show(_ index: Int) {
    mount = index
    mode = .files
    link = .none
    (server, totals, active) = (nil, nil, nil)
    (history, activeFiles, listed, files) = ([], [], [], [])
    (selected, first) = (nil, 0)
  }

  /// A server answers.
  mutating func connected(_ identity: ServerIdentity, _ now: Double) {
    if let before = server, before != identity {
      let isSame = before.program == identity.program
      say(isSame ? "another server goes on (process \(identity.pid))" : "\(identity.program) goes on", now)
    }
    server = identity
    link = .answers
  }

  /// What goes on now.
  mutating func update(_ sums: StatusTotals, _ news: [FileStatus]) {
    active = sums
    history = history.suffix(299) + [rate]
    let former = Dictionary(activeFiles.map { ($0.path, $0.rate) }, uniquingKeysWith: { first, _ in first })
    activeFiles = news.map { file in
      var calm = file
      // Between two windows of a file nothing comes for a moment: its rate is that of the last few looks.
      let new = file.rate.isFinite ? max(0, file.rate) : 0
      calm.rate = former[file.path].map { 0.6 * $0 + 0.4 * new } ?? new
      if calm.rate < 1024 { calm.rate = new }
      return calm
    }
    arrange()
  }

  /// All files of which something is known, as far as they were read.
  mutating func list(_ news: [FileStatus], isWhole: Bool) {
    listed = news
    isListedWhole = isWhole
    arrange()
  }

  // MARK: The order of the files

  /// Filters and sorts the files anew. The selected one stays selected, or the one that takes its place.
  mutating func arrange() {
    let former = selection
    var shown = activeFiles
    if showsAll {
      let active = Set(activeFiles.map { Array($0.path.utf8) })
      shown += listed.filter { !active.contains(Array($0.path.utf8)) }
    }
    if !filter.isEmpty {
      let wanted = filter.lowercased()
      shown = shown.filter { $0.path.lowercased().contains(wanted) }
    }
    files = TopOrder.sorted(shown, by: order, isReversed: isReversed)
    guard !files.isEmpty else {
      selected = nil
      return
    }
    if selection == nil { selected = files[min(former ?? 0, files.count - 1)].path }
    scroll()
  }

  /// Moves the selection.
  mutating func select(_ index: Int) {
    guard !files.isEmpty else { return }
    selected = files[min(max(index, 0), files.count - 1)].path
    scroll()
  }

  /// Scrolls so that the selected file is seen.
  mutating func scroll() {
    let index = selection ?? 0
    let rows = max(1, page)
    if index < first { first = index }
    if index >= first + rows { first = index - rows + 1 }
    first = max(0, min(first, files.count - rows))
  }

  mutating func choose(_ step: Int) { choice = min(max(choice + step, 0), max(0, mounts.count - 1)) }
  mutating func chooseFrom(_ index: Int) { choice = index }
}

extension FileStatus {
  /// Whether it is that file. By bytes: as Strings, names that differ only in their normalization are equal.
  func isAt(_ path: String) -> Bool { self.path.utf8.elementsEqual(path.utf8) }
}

/// The orders of files.
enum TopOrder {
  /// What matters more comes first: a reader that waits, one that reads, bytes that come, trouble, an open file.
  static func rank(_ file: FileStatus) -> Int {
    // A player waits for a moment now and then: its row stays where it is.
    if let readers = file.readers, !readers.isEmpty { return readers.contains { $0.waited ?? 0 >= 1 } ? 0 : 1 }
    if file.state == .complete || file.state == .modified { return file.opens != nil ? 5 : 6 }
    if file.transfers > 0 || file.rate >= 1024 { return 2 }
    if file.state == .failed || file.error != nil { return 3 }
    switch file.waitsFor {
    case .space, .origin: return 3
    case .line, .turn, .resume: return 4
    case .reader: return file.opens != nil ? 5 : 6
    case nil: return 2  // a transfer is about to start, or the file is being verified
    }
  }

  /// Sorted, files of equal rank by their paths, so that they keep their places.
  static func sorted(_ files: [FileStatus], by order: TopState.Order, isReversed: Bool) -> [FileStatus] {
    let byPath = files.sorted { $0.path < $1.path }
    if order == .name { return isReversed ? byPath.reversed() : byPath }
    let keyed = byPath.enumerated().map { (key: key($0.element, order), index: $0.offset) }
    let indices = keyed.sorted { left, right in
      if left.key != right.key { return isReversed ? left.key > right.key : left.key < right.key }
      return left.index < right.index
    }
    return indices.map { byPath[$0.index] }
  }

  private static func key(_ file: FileStatus, _ order: TopState.Order) -> Double {
    switch order {
    case .activity: return Double(rank(file))
    case .name: return 0
    // Tenths of a mebibyte: a rate that trembles does not make rows jump.
    case .rate: return file.rate.isFinite ? -(file.rate / 104_858).rounded() : 0
    case .stored: return -Double(TerminalText.percent(file.stored, of: file.size) ?? -1)
    case .size: return -Double(file.size ?? -1)
    }
  }
}
