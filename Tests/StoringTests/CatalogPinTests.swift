import Manifest
import Testing

@testable import Storing

/// What users asked for by name.
@Suite struct CatalogPinTests {
  @Test func pinsAreListedInOrderAndGone() throws {
    let folder = CatalogFolder()
    let keys = [
      ResourceKey(high: 0, low: 7), ResourceKey(high: 9, low: .max), ResourceKey(high: 10, low: 0),
      ResourceKey(high: .max, low: 1), ResourceKey(high: .max, low: .max),
    ]
    do {
      let catalog = try folder.open()
      try catalog.changes.apply(keys.reversed().map { .pinned($0, true) }, durably: true)
      try catalog.changes.apply([.pinned(keys[1], true)], durably: false)  // twice is once
    }
    let catalog = try folder.open()
    #expect(try catalog.notes.pins(limit: 10, after: nil) == keys)
    var paged: [ResourceKey] = []
    while let next = try catalog.notes.pins(limit: 1, after: paged.last).first { paged.append(next) }
    #expect(paged == keys)
    #expect(try catalog.notes.isPinned(keys[3]))
    #expect(try !catalog.notes.isPinned(ResourceKey(high: 7, low: 0)))
    try catalog.changes.apply([.pinned(keys[3], false), .pinned(ResourceKey(high: 7, low: 0), false)], durably: true)
    #expect(try !catalog.notes.isPinned(keys[3]))
    #expect(try catalog.notes.pins(limit: 10, after: nil) == keys.filter { $0 != keys[3] })
  }
}
