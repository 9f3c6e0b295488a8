import Base
import Glibc
import Manifest
import TestSupport

@testable import Storing

/// Compares what a store's catalog claims, byte for byte, with what the origin serves. For a store that no server has.
struct StoreAudit {
  /// Generations whose copies were whole once: they must stay so.
  private(set) var complete: Set<Int64> = []
  /// Bytes that were compared.
  private(set) var compared: Int64 = 0
  /// Bytes that the catalog claimed at the last look, by generation.
  private(set) var claimed: [Int64: Int64] = [:]
  /// What is wrong.
  private(set) var problems: [String] = []

  /// Begins; the copies of those generations must be whole.
  init(complete: Set<Int64> = []) { self.complete = complete }

  /// Looks at the store at `path`. `boot`: as in another boot, nil for this one. `stamps`: whether the library's copies
  /// must look as when they were placed, or only have the right bytes.
  mutating func look(at path: String, boot: String? = nil, stamps: Bool = true, everything: Bool = false) throws {
    guard access(path + "/catalog.sqlite", F_OK) == 0 else { return }  // killed before there was one
    let bootID = boot.map { Array($0.utf8) } ?? BootID.current(inMount: StoreMount.kernelsName(of: path))
    let catalog = try Catalog.open(path: path + "/catalog.sqlite", access: .readOnly, bootID: bootID)
    for problem in try catalog.integrityProblems(limit: 5) { problems.append("the catalog: \(problem)") }
    let placing = Dictionary(
      uniqueKeysWithValues: try catalog.generations.placements().map { ($0.generation.id, $0.path) })
    var found: Set<Int64> = []
    claimed = [:]
    for id in try catalog.generations.ids(limit: 1_000_000, after: 0) {
      guard let generation = try catalog.generations.find(id) else { continue }
      if generation.state == .complete {
        found.insert(id)
        try checkCopy(generation, path, stamps: stamps, wholly: everything || !complete.contains(id))
      } else {
        claimed[id] = generation.stored.count
        try checkPartial(generation, path, placing: placing[id])
      }
    }
    for id in complete.subtracting(found) { problems.append("generation \(id) was complete, and is not any more") }
    complete.formUnion(found)
    try catalog.close()
  }

  private mutating func checkPartial(_ generation: GenerationRecord, _ path: String, placing: String?) throws {
    if generation.stored.isEmpty { return }
    var name = "\(path)/partial/\(generation.id)"
    if access(name, F_OK) != 0, let placing { name = "\(path)/library/\(placing)" }
    let file: FileDescriptor
    do throws(Errno) { file = try FileDescriptor.open(name, O_RDONLY) } catch {
      problems.append("\(generation.stored.count) bytes of \(name) are claimed: \(error)")
      return
    }
    for range in generation.stored.ranges { check(file, range, generation, name) }
  }

  private mutating func checkCopy(
    _ generation: GenerationRecord, _ path: String, stamps: Bool, wholly: Bool
  ) throws {
    guard let copy = generation.copy else {
      problems.append("generation \(generation.id) is complete, and has no copy")
      return
    }
    if stamps {
      let state = try LibraryFolder(path + "/library").check(copy)
      if state != .intact { problems.append("the copy \(copy.path) is \(state)") }
    }
    guard wholly else { return }
    let name = "\(path)/library/\(copy.path)"
    do throws(Errno) {
      let file = try FileDescriptor.open(name, O_RDONLY)
      let size = Int64(try file.status().st_size)
      if size != copy.size || size != generation.size { problems.append("\(name) has \(size) bytes, not \(copy.size)") }
      check(file, ByteRange(0, copy.size), generation, name)
    } catch {
      problems.append("the copy \(name): \(error)")
    }
  }

  /// Compares a range, piece by piece.
  private mutating func check(
    _ file: borrowing FileDescriptor, _ range: ByteRange, _ generation: GenerationRecord, _ name: String
  ) {
    guard let (index, version) = Shelf.identify(generation.validators.lastModified) else {
      problems.append("generation \(generation.id) is of no resource: \(generation.validators)")
      return
    }
    var position = range.start
    while position < range.end {
      let count = Int(min(1 << 18, range.end - position))
      do throws(Errno) {
        let bytes = try readPart(file, at: position, count: count)
        if bytes.count < count {
          problems.append("\(name) ends at \(position + Int64(bytes.count)), and \(range) is claimed")
          return
        }
        if let wrong = Pattern.check(bytes, name: Shelf.path(index), generation: version, offset: position) {
          problems.append("\(name): byte \(wrong) of \(range) is wrong")
          return
        }
      } catch {
        problems.append("\(name) at \(position): \(error)")
        return
      }
      position += Int64(count)
      compared += Int64(count)
    }
  }
}
