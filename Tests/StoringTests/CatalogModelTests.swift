import Base
import Manifest
import TestSupport
import Testing

@testable import Storing

/// The rules for names of docs/STORE-FORMAT.md, as simply as they can be written: everything is searched through.
private struct NameModel {
  struct Row {
    var parent: Int?  // an index of a folder's row; nil: the root
    var isFolder: Bool
    var wanted: String
    var key: UInt64
    var name: String?
    var isListed = true
    var mayGain = false
    var gained: String?
    var hasApplied = false
  }
  struct Place: Hashable {
    var parent: Int?
    var name: String
  }

  var rows: [Row] = []
  var aliases: [Place: Int] = [:]
  var nextNumber: [Place: Int] = [:]

  mutating func load(_ lines: [ManifestEntry]) {
    var found: [Int] = []
    for line in lines {
      var parent: Int?
      for name in line.folder { parent = row(parent, true, name, 0, false, &found) }
      _ = row(parent, false, line.name, line.key.low, line.mayGainExtension, &found)
    }
    for index in rows.indices { rows[index].isListed = found.contains(index) }
    let unnamed = found.filter { rows[$0].name == nil }
    var toNumber: [Int] = []
    for index in unnamed {
      if !take(rows[index].wanted, index) { toNumber.append(index) }
    }
    for index in toNumber { takeNumbered(rows[index].wanted, index) }
  }

  private mutating func row(
    _ parent: Int?, _ isFolder: Bool, _ wanted: String, _ key: UInt64, _ mayGain: Bool, _ found: inout [Int]
  ) -> Int {
    let known = rows.firstIndex {
      $0.parent == parent && $0.isFolder == isFolder && $0.wanted == wanted && $0.key == key
    }
    if let known {
      if !found.contains(known) { found.append(known) }
      return known
    }
    var row = Row(parent: parent, isFolder: isFolder, wanted: wanted, key: key, mayGain: mayGain)
    if mayGain { row.gained = rows.first { !$0.isFolder && $0.key == key && $0.gained != nil }?.gained }
    rows.append(row)
    found.append(rows.count - 1)
    return rows.count - 1
  }

  private mutating func take(_ name: String, _ index: Int) -> Bool {
    let place = Place(parent: rows[index].parent, name: name)
    if let other = aliases[place], other != index, rows[other].isListed { return false }
    for other in rows.indices where other != index && rows[other].parent == place.parent && rows[other].name == name {
      if rows[other].isListed { return false }
      rows[other].name = nil
    }
    rows[index].name = name
    return true
  }

  private mutating func takeNumbered(_ wanted: String, _ index: Int) {
    let place = Place(parent: rows[index].parent, name: wanted)
    var number = nextNumber[place] ?? 2
    while !take(SafeName.numbered(wanted, number), index) { number += 1 }
    nextNumber[place] = number + 1
  }

  mutating func gain(_ key: UInt64, _ fileExtension: String) {
    for index in rows.indices where rows[index].key == key && rows[index].mayGain && rows[index].gained == nil {
      rows[index].gained = fileExtension
    }
  }

  mutating func applyExtensions() {
    for index in rows.indices {
      guard let gained = rows[index].gained, !rows[index].hasApplied, rows[index].isListed, let name = rows[index].name
      else { continue }
      if !take(SafeName.appendingExtension(name, gained), index) {
        takeNumbered(SafeName.appendingExtension(rows[index].wanted, gained), index)
      }
      aliases[Place(parent: rows[index].parent, name: name)] = index
      rows[index].hasApplied = true
    }
  }

  func path(_ index: Int) -> String {
    let row = rows[index]
    return (row.parent.map { path($0) + "/" } ?? "") + (row.name ?? "?")
  }

  var listed: [String: Int] {
    Dictionary(uniqueKeysWithValues: rows.indices.filter { rows[$0].isListed }.map { (path($0), $0) })
  }
}

@Suite struct CatalogModelTests {
  @Test func importsAreAsTheRulesSay() throws {
    var generator = SeededRandom.fromEnvironment(for: "imports")
    let names = ["a.mp4", "a (2).mp4", "a", "a (2)", "b", "a.ogg", "été"]
    let folders = ["", "", "a/", "b/", "a/b/", "a.mp4/"]
    for _ in 0..<40 {
      var folder = CatalogFolder()
      var catalog = try folder.open()
      var model = NameModel()
      var entryOf: [Int: Int64] = [:]
      for _ in 0..<12 {
        var lines: [ManifestEntry] = []
        for _ in 0..<Int.random(in: 1...25, using: &generator) {
          let name = names.randomElement(using: &generator) ?? ""
          let path = (folders.randomElement(using: &generator) ?? "") + name
          lines.append(line(path, .random(in: 1...6, using: &generator), mayGain: !name.contains(".")))
        }
        try catalog.load(lines)
        model.load(lines)
        try compare(catalog, model, &entryOf)
        if Bool.random(using: &generator) {
          let number = UInt64.random(in: 1...6, using: &generator)
          try catalog.changes.apply([.gainedExtension(key(number), number < 4 ? "mp4" : "ogg")], durably: false)
          model.gain(number, number < 4 ? "mp4" : "ogg")
        }
        if Int.random(in: 0..<3, using: &generator) == 0 {
          if Bool.random(using: &generator) { try catalog.close() } else { folder = try folder.crashed() }
          catalog = try folder.open()
          _ = try catalog.tree.applyPendingExtensions()
          model.applyExtensions()
          try compare(catalog, model, &entryOf)
        }
      }
    }
  }

  private func compare(_ catalog: Catalog, _ model: NameModel, _ entryOf: inout [Int: Int64]) throws {
    let tree = try catalog.listing()
    let listed = model.listed
    try #require(Set(tree.keys) == Set(listed.keys))
    let files = tree.values.filter { $0.kind == .file }.count
    #expect(try catalog.tree.counts() == CatalogCounts(names: Int64(tree.count), files: Int64(files)))
    for (path, index) in listed {
      let node = try #require(tree[path])
      #expect(node.kind == (model.rows[index].isFolder ? .folder : .file))
      #expect(node.key.low == model.rows[index].key)
      // An entry is the same for as long as the store lives.
      #expect(entryOf[index] ?? node.entry == node.entry)
      entryOf[index] = node.entry
      #expect(try catalog.tree.find(path: path) == node)
      #expect(try catalog.tree.path(of: node.inode) == path)
    }
    for (place, index) in model.aliases where model.rows[index].isListed {
      // One who took the name while the alias's entry was not listed has it now.
      let isTaken = model.rows.contains { $0.isListed && $0.parent == place.parent && $0.name == place.name }
      if isTaken { continue }
      let parent = place.parent.flatMap { entryOf[$0] } ?? Int64(rootInode)
      #expect(try catalog.look(place.name, in: Inode(parent))?.entry == entryOf[index])
    }
  }
}
