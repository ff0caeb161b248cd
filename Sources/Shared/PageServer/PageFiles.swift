// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// The front end's files on disk, by the path that a browser requests.
///
/// It has only files in the folder with a plain name and a known extension.
public struct PageFiles: Sendable {
  /// No file of the front end is larger.
  private static let maxBytes = 4 << 20

  private let folder: String
  private let page: String

  /// `page`: the file for the addresses of views. `nil`: the folder has no front end.
  public init?(folder: String, page: String = "index.html") {
    guard access("\(folder)/\(page)", R_OK) == 0 else { return nil }
    self.folder = folder
    self.page = page
  }

  /// An open file, for reading in pieces.
  public final class File {
    public let type: String
    public let size: Int
    /// The entity tag: it changes with the file.
    public let tag: String
    public let isGzip: Bool
    /// Whether a browser may show the file by itself, or run it in a worker: then it needs a policy of its own.
    public let isDocument: Bool
    /// The value of `Cache-Control`. The names of packed files contain a hash of their content (`deploy/pages/pack`), so a browser requests them only
    /// once.
    public let cacheControl: String
    private let descriptor: Int32

    fileprivate init?(_ location: String, type: String, isGzip: Bool, isDocument: Bool, isFixed: Bool) {
      let descriptor = open(location, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
      guard descriptor >= 0 else { return nil }
      var facts = stat()
      guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG,
        (0...PageFiles.maxBytes).contains(facts.st_size)
      else {
        close(descriptor)
        return nil
      }
      self.descriptor = descriptor
      self.type = type
      self.isGzip = isGzip
      self.isDocument = isDocument
      cacheControl = isFixed ? "public, max-age=31536000, immutable" : "no-cache"
      size = facts.st_size
      let parts = [Int(facts.st_mtim.tv_sec), Int(facts.st_mtim.tv_nsec), size].map { String($0, radix: 16) }
      tag = "\"\(parts.joined(separator: "-"))\(isGzip ? "-gz" : "")\""
    }

    deinit { close(descriptor) }

    /// Reads at most `most` bytes. Empty: the end; `nil`: an error.
    public func read(_ most: Int) -> [UInt8]? {
      var failed = false
      let bytes = [UInt8](unsafeUninitializedCapacity: most) { buffer, count in
        var got = Glibc.read(descriptor, buffer.baseAddress, most)
        while got < 0, errno == EINTR { got = Glibc.read(descriptor, buffer.baseAddress, most) }
        failed = got < 0
        count = max(0, got)
      }
      return failed ? nil : bytes
    }
  }

  /// The file for a path; for the address of a view, its page. `nil`: there is none.
  public func file(for path: String, acceptsGzip: Bool) -> File? {
    guard let name = Self.name(for: path, page: page), let type = Self.type(of: name) else { return nil }
    let location = "\(folder)/\(name)"
    let isPart = name != "worker.js" && ["text/javascript", "text/css"].contains { type.begins(with: $0) }
    let isFixed = name.begins(with: "packed/")
    func opened(_ location: String, isGzip: Bool) -> File? {
      File(location, type: type, isGzip: isGzip, isDocument: !isPart, isFixed: isFixed)
    }
    return (acceptsGzip ? opened(location + ".gz", isGzip: true) : nil) ?? opened(location, isGzip: false)
  }

  /// The name relative to the folder; `nil`: such a file is impossible.
  static func name(for path: String, page: String = "index.html") -> String? {
    if path.isExactly("/worker.js") || path.isExactly("/manifest.webmanifest") { return String(path.utf8.dropFirst()) }
    guard path.begins(with: "/pages/") else {
      // Addresses of views have no extension: a path with one is a missing file.
      let last = path.utf8.split(separator: UInt8(ascii: "/")).last ?? path.utf8[...]
      return last.contains(UInt8(ascii: ".")) ? nil : page
    }
    let name = path.utf8.dropFirst("/pages/".utf8.count)
    let parts = name.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    guard parts.count <= 4, parts.allSatisfy(isPlain) else { return nil }
    return String(name)
  }

  private static func isPlain(_ part: some Collection<UInt8>) -> Bool {
    guard let first = part.first, first != UInt8(ascii: "."), part.count <= 64 else { return false }
    return part.allSatisfy { $0.isLetterOrDigit || ".-_".utf8.contains($0) }
  }

  private static func type(of name: String) -> String? {
    let types = [
      ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
      ".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json",
      ".json": "application/json", ".woff2": "font/woff2", ".geojson": "application/geo+json",
    ]
    return types.first { name.ends(with: $0.key) }?.value
  }
}
