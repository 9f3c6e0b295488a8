import TestSupport
import Testing

extension Journey {
  /// What `ls` shows of a folder of the mount, in its order.
  func names(_ folder: String = "") throws -> [String] {
    try succeed(["ls", at(folder)]).split(separator: "\n").map(String.init)
  }

  /// Waits until a folder of the mount has exactly these names.
  func waitForNames(
    _ wanted: [String], in folder: String = "", sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    var last: [String]?
    let came = eventually {
      last = try? names(folder)
      return last == wanted
    }
    #expect(came, "\(last ?? []): \(log.suffix(2000))", sourceLocation: sourceLocation)
  }
}
