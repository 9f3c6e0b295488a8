import Manifest

@testable import Storing

extension Catalog {
  /// Imports a list of these paths, the key of each made from its path. `mayGain`: paths whose names may gain an
  /// extension.
  func list(_ paths: [String], mayGain: Set<String> = []) throws {
    var rest = paths[...]
    _ = try importBatches(fingerprint: [1], strict: true, report: { _ in }) { () throws(StoreError) in
      if rest.isEmpty { return nil }
      var batch = ImportBatch()
      for (line, path) in rest.enumerated() {
        let names = path.split(separator: "/").map { String($0) }
        batch.append(
          .entry(
            ManifestEntry(
              line: line + 1, urls: ["http://127.0.0.1:1/\(line)"], folder: names.dropLast(),
              name: names[names.count - 1], mayGainExtension: mayGain.contains(path), key: ResourceKey(id: path))))
      }
      rest = []
      return batch
    }
  }
}
