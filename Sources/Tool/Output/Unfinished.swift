// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import UntrustedText

/// Files that this program has begun, and that a signal removes together with it: they hold a secret, or are incomplete. A kill leaves them; whoever
/// looks for them later tells by their locks which ones nobody is writing.
enum Unfinished {
  private static let most = 1024
  private static let signals = [SIGINT, SIGTERM, SIGHUP]
  /// Made once. `nonisolated(unsafe)`: it changes only while the signals are blocked, and the handler only reads it.
  private nonisolated(unsafe) static let places: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?> = {
    let places = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: most)
    places.initialize(repeating: nil, count: most)
    for number in signals { handle(number) }
    return places
  }()

  /// Makes something, and notes its location, which is empty for nothing: no signal comes in between.
  @discardableResult
  static func noting<Value>(_ make: () throws -> (Value, location: String)) rethrows -> Value {
    try undisturbed {
      let (value, location) = try make()
      // Without a free place it stays after a signal.
      guard !location.isEmpty, let free = (0..<most).first(where: { places[$0] == nil }) else { return value }
      places[free] = strdup(location)
      return value
    }
  }

  /// It has its final name, or is gone.
  static func forget(_ location: String) {
    undisturbed {
      for place in 0..<most {
        guard let noted = places[place], strcmp(noted, location) == 0 else { continue }
        places[place] = nil
        free(noted)
      }
    }
  }

  private static func undisturbed<Value>(_ work: () throws -> Value) rethrows -> Value {
    var (mask, before) = (sigset_t(), sigset_t())
    sigemptyset(&mask)
    for number in signals { sigaddset(&mask, number) }
    pthread_sigmask(SIG_BLOCK, &mask, &before)
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
    return try work()
  }

  /// Only where the signal would end the program: under `nohup` it does not.
  private static func handle(_ number: Int32) {
    var (ours, old) = (sigaction(), sigaction())
    sigaction(number, nil, &old)
    guard old.__sigaction_handler.sa_handler == nil else { return }
    // After it, the signal has its usual effect, also the one that is raised in it.
    ours.sa_flags = Int32(bitPattern: UInt32(SA_RESETHAND))
    ours.__sigaction_handler.sa_handler = { number in
      // Files first, then the folders that held them.
      for place in 0..<Unfinished.most { if let noted = Unfinished.places[place] { unlink(noted) } }
      for place in 0..<Unfinished.most { if let noted = Unfinished.places[place] { rmdir(noted) } }
      raise(number)
    }
    sigaction(number, &ours, nil)
  }

  // MARK: Of earlier runs

  /// Whether no program is writing it any more: one that does holds its lock.
  private static func isLeft(_ location: String, _ flags: Int32) -> Bool {
    let descriptor = open(location, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    return flock(descriptor, LOCK_EX | LOCK_NB) == 0
  }

  /// Removes what runs of this program that were killed have left in the folder: temporary folders, and incomplete files of these names, or of all.
  static func removeLeft(in folder: String, partsOf names: [String]? = nil) {
    for name in Self.names(in: folder) {
      let place = "\(folder)/\(name)"
      if Folder.isTemporary(name) {
        guard isLeft(place, O_DIRECTORY) else { continue }
        for file in Files.names(in: place) { unlink("\(place)/\(file)") }
        rmdir(place)
      } else if let whole = OutputFile.whole(ofPart: name), names?.contains(where: { $0.isExactly(whole) }) ?? true {
        if isLeft(place, 0) { unlink(place) }
      }
    }
  }

  /// Hidden ones, too.
  private static func names(in location: String) -> [String] {
    guard let folder = opendir(location) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
      names.append(
        withUnsafePointer(to: &entry.pointee.d_name) { pointer in
          pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        })
    }
    return names
  }
}
