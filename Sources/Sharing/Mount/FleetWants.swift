import Base
import Reading

/// What readers want: from Reading to the fleet's code.
extension FleetMember {
  package func want(_ wants: SecondWants, of known: SecondFile, now: Instant) -> [ByteRange] {
    guard let file = files[known.generation], isShared(file) else { return [] }
    file.waits = wants.fronts
    for (block, window) in file.windows {
      if file.waits.contains(where: { window.contains($0) }) { continue }
      if wants.inFlight.contains(where: { $0.overlaps(window) }) { continue }
      file.windows[block] = nil
      tell(file, block) { .window($0) }
    }
    if !wants.ranges.isEmpty { askForProbe(of: file) }
    var wanted: Set<Int> = []
    for range in wants.ranges {
      for block in file.blocks(of: unprobed(range, file)) where !file.isWhole(block) {
        // What counts as here is asked for without the others.
        if !fleet.holds(block % layout.segment, at: place(file, block)) { wanted.insert(block) }
      }
    }
    var fronts: Set<Int> = []
    for front in wants.fronts where wanted.contains(Int(front / file.block)) { fronts.insert(Int(front / file.block)) }
    if wanted != file.foreground || fronts != file.fronts {
      (file.foreground, file.fronts) = (wanted, fronts)
      tellReaders(of: file)
    }
    // A look at a file's beginning is not worth a list.
    if !file.isListing, !file.isListed, wanted.count > 1 || file.continues {
      file.isListing = true
      list(file, after: nil)
    }
    let inFlight = wants.inFlight.reduce(into: Set<Int>()) { $0.formUnion(file.blocks(of: $1)) }
    let owed = owedBlocks(of: file)
    for (block, grant) in file.granted where !grant.isAsked && isAsked(file.range(of: block), file, wants) {
      file.granted[block]?.isAsked = true
      tell(file, block) { .asked($0) }
    }
    giveBack(file) { wanted.contains($0) || file.continues || inFlight.contains($0) || owed.contains($0) }
    defer { file.left = [] }
    return file.left.map { file.range(of: $0) }
  }

  /// The granted blocks of which so much is here that the rest is fetched too, though the reader has gone on: it began
  /// in the middle of one, or a killed server left holes behind it. Others wait for the whole block.
  private func owedBlocks(of file: SharedFile) -> [Int] {
    file.granted.keys.filter { block in
      let range = file.range(of: block)
      return file.stored.count(in: range) >= range.count / 4 * 3
    }.sorted()
  }

  package func owes(_ known: SecondFile, besides wants: SecondWants) -> [ByteRange] {
    guard let file = files[known.generation], isShared(file), !file.granted.isEmpty else { return [] }
    let covered = wants.covered
    return owedBlocks(of: file).flatMap { block -> [ByteRange] in
      let range = file.range(of: block)
      var gaps: [ByteRange] = []
      var position = range.start
      while let gap = file.stored.firstGap(in: ByteRange(position, range.end)) {
        if let open = covered.firstGap(in: gap) { gaps.append(open) }
        position = gap.end
      }
      return gaps
    }
  }

  /// Whether all of a block is stored, on its way, or about to be asked for.
  private func isAsked(_ block: ByteRange, _ file: SharedFile, _ wants: SecondWants) -> Bool {
    let covered = wants.covered
    var position = block.start
    while position < block.end {
      let next = max(file.stored.runEnd(from: position), covered.runEnd(from: position))
      if next == position { return false }
      position = next
    }
    return true
  }

  /// Each run of wanted blocks is a reader's; one begins where a reader waits.
  func tellReaders(of file: SharedFile) {
    var runs: [(block: Int, ahead: Int)] = []
    for block in file.foreground.sorted() {
      if let last = runs.last, last.block + last.ahead + 1 == block, !file.fronts.contains(block) {
        runs[runs.count - 1].ahead += 1
      } else {
        runs.append((block, 0))
      }
    }
    let most = 64
    // What a reader waits for comes first.
    let waited = runs.filter { file.fronts.contains($0.block) }
    let told = (waited + runs.filter { !file.fronts.contains($0.block) }).prefix(most)
    let former = file.readers
    file.readers = told.count
    change { fleet, actions in
      for (number, run) in told.enumerated() {
        fleet.read(
          file.generation &* most &+ number, file.generation, block: run.block, ahead: run.ahead, into: &actions)
      }
      for number in stride(from: told.count, to: former, by: 1) {
        fleet.read(file.generation &* most &+ number, file.generation, block: nil, into: &actions)
      }
    }
  }

  /// Gives back what was granted, and nobody here wants any more: no lease is held for nothing.
  func giveBack(_ file: SharedFile, result: FetchResult = .stopped, unless isWanted: (Int) -> Bool) {
    for block in Array(file.granted.keys) where !isWanted(block) {
      file.granted[block] = nil
      tell(file, block) { .fetched($0, result) }
    }
    for block in Array(file.looking) where !isWanted(block) {
      file.looking.remove(block)
      // Some of it is here, and the rest may be asked for at any time.
      let isThere = file.inTier.contains(block)
      tell(file, block) { .looked($0, isThere ? .found : .failed) }
    }
  }
}
