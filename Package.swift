// swift-tools-version: 6.2
import PackageDescription

// An expression that the type checker tries in more ways is an error, before an older compiler gives up at it. Counted, not timed: a busy
// machine judges as a quiet one. Older compilers count more for the same, and have a bound of their own.
#if compiler(>=6.3)
  let boundedTypeChecks: [SwiftSetting] = [.unsafeFlags(["-Xfrontend", "-solver-scope-threshold=50000"])]
#else
  let boundedTypeChecks: [SwiftSetting] = []
#endif

// The manifest is the architecture: arrows point down only. See docs/architecture.md.
// Asynchronous functions run where their caller runs: on the loop.
let strict: [SwiftSetting] =
  [.treatAllWarnings(as: .error), .enableUpcomingFeature("NonisolatedNonsendingByDefault")] + boundedTypeChecks

/// Regular expressions are linked into a program whose modules search one text for another with them: 1 MB of the daemon.
let withoutExpressions: [SwiftSetting] =
  [.unsafeFlags(["-Xfrontend", "-disable-implicit-string-processing-module-import"])]

/// Modules are optimized in debug builds, too: tests turn loops for invented weeks (DeliveryTests: 54 s of a processor instead of 321). Assertions stay.
let optimized: [SwiftSetting] = [.unsafeFlags(["-O", "-assert-config", "Debug"], .when(configuration: .debug))]

/// A module of a room: `Sources/ROOM/NAME`.
func module(_ room: String, _ name: String, _ needs: [Target.Dependency] = [], embedded: [String] = []) -> Target {
  .target(
    name: name, dependencies: needs, path: "Sources/\(room)/\(name)",
    resources: embedded.map { Resource.embedInCode($0) },
    swiftSettings: (room == "Hub" ? strict : strict + withoutExpressions) + optimized)
}

/// `make fuzz` builds its own program alone.
let isFuzzer = Context.environment["MESHPOST_FUZZER"] != nil

/// A program: wiring, arguments, exit codes.
func program(
  _ folder: String, _ name: String, _ needs: [Target.Dependency], embedded: [String] = [], exported: [String] = []
) -> Target {
  let resources = embedded.map { Resource.embedInCode($0) }
  guard isFuzzer, name == "meshpost" else {
    return .executableTarget(
      name: name, dependencies: needs, path: "Sources/\(folder)", resources: resources, swiftSettings: strict,
      linkerSettings: exported.isEmpty
        ? [] : [.unsafeFlags(exported.flatMap { ["-Xlinker", "--export-dynamic-symbol=\($0)"] })])
  }
  // Only tests may have an executable in them; the fuzzer has it as a library, whose `main` has another name.
  return .target(
    name: name, dependencies: needs, path: "Sources/\(folder)", resources: resources,
    swiftSettings: strict + [.unsafeFlags(["-Xfrontend", "-entry-point-function-name", "-Xfrontend", "no_main"])])
}

func tests(_ name: String, _ needs: [Target.Dependency]) -> Target {
  .testTarget(name: name, dependencies: needs, swiftSettings: strict)
}

extension Target.Dependency {
  static func of(_ package: String, _ product: String) -> Target.Dependency {
    .product(name: product, package: package)
  }

  static let arguments = of("swift-argument-parser", "ArgumentParser")
}

/// Modules of the package in `Sources/MeshCore`. What is neither of it nor named here is of that in `Sources/Loop`.
let meshCore: Set = [
  "BluetoothSession", "Companion", "Delivery", "MeshCoreFixtures", "MeshCrypto", "MeshIdentity", "RadioSession",
]

/// What gateways and hubs do alike: a hub imports nothing of a gateway.
let shared: [Target] = [
  module("Shared", "Release"),
  // Names of files that a gateway makes, and that the command line must not write over.
  module("Shared", "OwnFiles"),
  module("Shared", "Alerts", ["Timing", "TOML"]),
  module("Shared", "ControlShapes", ["JSON"]),
  // Descriptions of interfaces over HTTP, of hubs and of the control socket.
  module("Shared", "OpenAPI", ["JSON"]),
  module("Shared", "Documents", ["UntrustedText", "JSON"]),
  // Pages in a browser: their files lie in Sources/Pages, and are no Swift.
  module("Shared", "PageServer", ["COpenSSL", "UntrustedText", "EventLoop", "HTTP", "JSON", "MeshCrypto", "Timing"]),
]

/// Radio → store → upstreams.
let gateway: [Target] = [
  module(
    "Gateway", "Transport",
    [
      "BluetoothSession", "CBluetooth", "CLinux", "Companion", "DBus", "EventLoop", "ServiceManager", "Timing",
      "UntrustedText",
    ]),
  module(
    "Gateway", "Store",
    [
      "CLinux", "Companion", "ControlShapes", "Documents", "UntrustedText", "JSON", "MeshCrypto", "OwnFiles",
      "RadioSession", "SQLite", "Timing",
    ]),
  module(
    "Gateway", "Sync",
    ["Companion", "EventLoop", "MeshCrypto", "RadioSession", "Store", "Timing", "Transport"]),
  module(
    "Gateway", "Messaging",
    [
      "CLinux", "Companion", "ControlShapes", "Delivery", "UntrustedText", "EventLoop", "JSON", "MeshCrypto",
      "RadioSession", "SQLite", "Store", "Sync", "Timing",
    ]),
  module(
    "Gateway", "Relay",
    [
      "CLinux", "Companion", "ControlShapes", "Deflate", "Documents", "UntrustedText", "EventLoop", "HTTP", "JSON",
      "MeshCrypto", "MQTT", "ProxyTunnel", "ServiceManager", "Store", "Sockets", "Timing",
    ]),
  module(
    "Gateway", "RadioSharing",
    [
      "CLinux", "Companion", "EventLoop", "MeshCrypto", "Messaging", "RadioSession", "Store", "Sockets", "Sync",
      "Timing",
    ]),
  module(
    "Gateway", "Control",
    [
      "Alerts", "BluetoothSession", "CLinux", "Companion", "ControlShapes", "Delivery", "Documents", "UntrustedText",
      "EventLoop", "PrometheusText", "HTTP", "JSON", "MeshCrypto", "Messaging", "OwnFiles", "RadioSharing", "Relay",
      "SQLite", "Store", "Sync",
      "Timing",
      "TOML", "Transport", "PageServer",
    ]),
  module(
    "Gateway", "Gateway",
    [
      "Alerts", "CLinux", "Companion", "Control", "Delivery", "Documents", "UntrustedText", "EventLoop", "HTTP", "JSON",
      "MeshCrypto", "Messaging", "OwnFiles", "ProxyTunnel", "RadioSharing", "Relay", "Release", "ServiceManager",
      "SQLite", "Store", "Sync", "Timing", "TOML", "Transport", "PageServer",
    ]),
  program("Gateway/meshpostd", "meshpostd", ["EventLoop", "Gateway", "ServiceManager"]),
]

/// The other end of the wire. It has threads and FoundationEssentials; the whole of Foundation brings 34 MB of ICU.
let hub: [Target] = [
  module(
    "Hub", "Hub",
    [
      "Alerts", "Companion", "Console", "COpenSSL", "CPostgres", "Deflate", "Documents", "UntrustedText",
      "EventLoop", "PrometheusText", "HTTP", "JSON", "MeshCrypto", "MQTT", "OpenAPI", "Release", "ServiceManager",
      "SQLite", "Sockets", "Timing", "TOML",
      "PageServer", .of("hummingbird", "Hummingbird"), .of("hummingbird", "HummingbirdCore"),
      .of("swift-log", "Logging"),
      .of("swift-http-types", "HTTPTypes"), .of("swift-nio", "NIOCore"), .of("swift-nio", "NIOEmbedded"),
      .of("swift-nio", "NIOHTTP1"),
      .of("swift-nio", "NIOPosix"), .of("swift-nio", "NIOWebSocket"), .of("swift-nio-extras", "NIOHTTPTypes"),
      .of("swift-nio-extras", "NIOHTTPTypesHTTP1"), .of("swift-service-lifecycle", "ServiceLifecycle"),
    ], embedded: ["Store/decompositions.gz"]),
  program(
    "Hub/meshpost-hub", "meshpost-hub",
    [
      "Console", "EventLoop", "HTTP", "Hub", "JSON", "MQTT", "Release", "ServiceManager", "Sockets", "Timing",
      "UntrustedText", .arguments,
    ]),
]

/// The command line.
let tool: [Target] = [
  program(
    "Tool", "meshpost",
    [
      "CLinux", "Companion", "Console", "ControlShapes", "COpenSSL", "UntrustedText", "EventLoop", "HTTP", "JSON",
      "MeshCrypto", "OpenAPI", "OwnFiles", "Release", "Timing", "TOML", "Transport", "PageServer", .arguments,
    ], embedded: ["Pictures/map.css", "Pictures/map.js"])
]

/// The other end of the link, and what measures. Knows all; nothing knows it.
let simulation: [Target] = [
  module(
    "Simulation", "VirtualRadio",
    ["CLinux", "Companion", "EventLoop", "JSON", "MeshCrypto", "MeshIdentity", "Timing"]),
  module("Simulation", "LinkInMemory", ["Companion", "EventLoop", "Transport", "VirtualRadio"]),
  module(
    "Simulation", "World",
    [
      "CLinux", "Companion", "CrashDisk", "CSeededRandom", "EarlierSchemas", "EventLoop", "Gateway", "HTTP", "Hub",
      "JSON", "LinkInMemory", "LoopTestSupport", "MeshCrypto", "Sockets", "SQLite", "Store", "Timing", "Transport",
      "VirtualRadio",
    ]),
  .target(name: "CSeededRandom", path: "Sources/Simulation/CSeededRandom"),
  program(
    "Simulation/meshpost-simulate", "meshpost-simulate", ["Console", "EventLoop", "Timing", "World", .arguments],
    // Shared libraries ask the world for random numbers, too.
    exported: ["getrandom", "getentropy", "arc4random", "arc4random_buf"]),
  // Crash images of databases: what a power cut leaves. Its C part takes the place of fsync in the program that has it.
  .target(name: "CCrashDisk", path: "Sources/Simulation/CCrashDisk"),
  module("Simulation", "CrashDisk", ["CCrashDisk", "CSQLite"]),
  // What programs of earlier versions would have left, made of present databases.
  module("Simulation", "EarlierSchemas", ["SQLite"]),
  program(
    "Simulation/meshpost-radio", "meshpost-radio",
    ["CLinux", "Console", "EventLoop", "MeshCrypto", "Release", "Timing", "VirtualRadio", .arguments]),
  program(
    "Simulation/meshpost-bench", "meshpost-bench",
    ["Companion", "EventLoop", "JSON", "MeshCrypto", "SQLite", "Store", "Timing", "Transport"]),
]

let trials: [Target] = [
  .target(
    name: "TestSupport",
    dependencies: [
      "CrashDisk", "EarlierSchemas", "EventLoop", "LinkInMemory", "LoopTestSupport", "MeshCoreFixtures", "SQLite",
      "Store",
    ],
    path: "Tests/TestSupport", swiftSettings: strict),
  tests(
    "StoreTests",
    [
      "Companion", "CrashDisk", "Documents", "EarlierSchemas", "JSON", "MeshCrypto", "SQLite", "Store", "TestSupport",
      "Timing",
    ]),
  tests("PageServerTests", ["HTTP", "TestSupport", "Timing", "PageServer", "UntrustedText"]),
  tests(
    "RelayTests",
    [
      "Companion", "Documents", "EventLoop", "HTTP", "JSON", "MQTT", "MeshCrypto", "Relay", "SQLite", "Store",
      "Sockets", "TestSupport", "Timing",
    ]),
  tests(
    "ProgramTests",
    [
      "Companion", "COpenSSL", "Deflate", "EarlierSchemas", "UntrustedText", "EventLoop", "HTTP", "JSON", "MeshCrypto",
      "meshpost", "meshpost-hub", "meshpost-radio", "meshpostd", "Sockets", "Store", "TestSupport", "Timing",
      .arguments,
    ]),
  // What begins and ends a thousand times leaves nothing behind: in a process of their own, for they count what the process holds.
  tests("LifetimeTests", ["EventLoop", "HTTP", "Relay", "Store", "Sockets", "TestSupport", "Timing"]),
  tests(
    "MessagingTests",
    [
      "Companion", "Delivery", "EventLoop", "JSON", "MeshCrypto", "MeshIdentity", "Messaging", "SQLite", "Store",
      "Sync", "TestSupport", "Timing", "Transport", "UntrustedText", "VirtualRadio",
    ]),
  tests("FuzzTests", ["Companion", "Hub", "Messaging", "RadioSession", "Store", "TestSupport", "Timing", "TOML"]),
  tests(
    "SyncTests", ["Companion", "EventLoop", "Store", "Sync", "TestSupport", "Timing", "Transport", "VirtualRadio"]),
  tests(
    "TransportTests",
    [
      "BluetoothSession", "CLinux", "Companion", "DBus", "EventLoop", "TestSupport", "Timing", "Transport",
      "VirtualRadio",
    ]),
  tests("VirtualRadioTests", ["Companion", "EventLoop", "TestSupport", "Timing", "VirtualRadio"]),
  tests(
    "HubTests",
    [
      "Companion", "CrashDisk", "Deflate", "Documents", "EarlierSchemas", "HTTP", "Hub", "JSON", "Relay", "SQLite",
      "Store", "TestSupport", "Timing", "TOML", "UntrustedText",
      "PageServer",
      .of("swift-nio", "NIOCore"), .of("swift-nio", "NIOEmbedded"), .of("swift-nio", "NIOHTTP1"),
      .of("swift-nio", "NIOWebSocket"),
    ]),
  tests(
    "ControlTests",
    [
      "Companion", "Control", "ControlShapes", "EventLoop", "JSON", "Messaging", "RadioSharing", "Relay", "Store",
      "Sync",
      "TestSupport", "Transport",
    ]),
  tests(
    "RadioSharingTests",
    [
      "Companion", "Delivery", "EventLoop", "MeshCrypto", "Messaging", "RadioSharing", "SQLite", "Store", "Sockets",
      "Sync",
      "TestSupport", "Timing",
      "Transport",
      "VirtualRadio",
    ]),
  tests("AlertsTests", ["Alerts", "Timing"]),
  .testTarget(name: "WorldTests", exclude: ["Kept"], swiftSettings: strict),
  tests(
    "GatewayTests",
    [
      "Alerts", "Companion", "Delivery", "EventLoop", "Gateway", "HTTP", "JSON", "MeshCrypto", "MeshIdentity",
      "Messaging", "ProxyTunnel", "Relay", "SQLite", "Store", "TestSupport", "Timing", "Transport", "VirtualRadio",
    ]),
]

/// The readers of inputs from outside, and their properties: libFuzzer looks for inputs that break one, and a suite tries those that
/// were kept. Both are one folder, because the readers are what modules keep to themselves, which only tests and the fuzzer may see.
let fuzzing: Target = {
  let needs: [Target.Dependency] = [
    "Companion", "Control", "DBus", "Deflate", "Documents", "EventLoop", "Gateway", "HTTP", "Hub", "JSON",
    "LoopTestSupport", "meshpost", "Messaging", "MQTT", "RadioSession", "RadioSharing", "Relay", "Store", "Sync",
    "Timing", "TOML", "Transport", "UntrustedText", .of("swift-nio", "NIOCore"), .of("swift-nio", "NIOEmbedded"),
    .of("swift-nio", "NIOWebSocket"),
  ]
  let path = "Tests/Fuzzing"
  guard isFuzzer else {
    return .testTarget(
      name: "FuzzingTests", dependencies: needs, path: path, exclude: ["Fuzzer.swift", "Inputs", "README.md"],
      swiftSettings: strict)
  }
  return .executableTarget(
    name: "meshpost-fuzz", dependencies: needs, path: path, exclude: ["KeptInputsTests.swift", "Inputs", "README.md"],
    swiftSettings: strict)
}()

let targets = shared + gateway + hub + tool + simulation + trials + [fuzzing]
let here = Set(targets.map(\.name))
for target in targets {
  target.dependencies = target.dependencies.map { dependency in
    guard case .byNameItem(let name, _) = dependency, !here.contains(name) else { return dependency }
    return .of(meshCore.contains(name) ? "MeshCore" : "Loop", name)
  }
}

let package = Package(
  name: "meshpost",
  products: isFuzzer
    ? []
    : [
      .executable(name: "meshpostd", targets: ["meshpostd"]),
      .executable(name: "meshpost", targets: ["meshpost"]),
      .executable(name: "meshpost-hub", targets: ["meshpost-hub"]),
      .executable(name: "meshpost-radio", targets: ["meshpost-radio"]),
    ],
  dependencies: [
    .package(path: "Sources/Loop"), .package(path: "Sources/MeshCore"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    // Without what needs the whole of Foundation, or a configuration of its own.
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
    .package(url: "https://github.com/apple/swift-http-types", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
  ],
  targets: targets,
  swiftLanguageModes: [.v6]
)
