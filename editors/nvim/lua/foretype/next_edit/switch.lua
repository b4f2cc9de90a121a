--- Whether there are next edits, how eager the server is with them, and `:ForetypeNextEdit`.
local M = {}

local LEVELS = { 'low', 'medium', 'high' }
local NAMES = { 'accept', 'dismiss', 'eagerness', 'jump', 'toggle' }

local settings, shown

local function options()
  local given = settings.options.nextEdit -- a boolean is short for `enabled`
  return type(given) == 'table' and given or { enabled = given }
end

function M.on()
  return options().enabled ~= false
end

--- Set an option, here and in the server.
local function set(name, value)
  local given = vim.tbl_extend('force', options(), { [name] = value })
  settings.options.nextEdit = given
  shown.drop()
  local lsp = require('foretype.lsp')
  local client = lsp.client()
  if client then
    local all = vim.tbl_extend('force', client.config.init_options or {}, { nextEdit = given })
    client.config.init_options = all
    lsp.call(client, 'notify', 'workspace/didChangeConfiguration', { settings = { foretype = all } })
  end
end

--- Switch next edits on or off.
function M.toggle()
  set('enabled', not M.on())
  vim.notify('Foretype: next edits are ' .. (M.on() and 'on' or 'off'))
end

--- @param level string? 'low' | 'medium' | 'high'
function M.eagerness(level)
  if not vim.tbl_contains(LEVELS, level) then
    return vim.notify('Foretype: eagerness is one of ' .. table.concat(LEVELS, ', '), vim.log.levels.WARN)
  end
  set('eagerness', level)
end

local function command(given)
  local name, level = unpack(given.fargs)
  if name == 'eagerness' then
    M.eagerness(level)
  elseif name == 'toggle' then
    M.toggle()
  elseif vim.tbl_contains(NAMES, name) then
    shown[name]()
  else
    vim.notify('Foretype: :ForetypeNextEdit takes ' .. table.concat(NAMES, ', '), vim.log.levels.WARN)
  end
end

local function completions(start, line)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, start)
  end, line:find('eagerness ') and LEVELS or NAMES)
end

--- @param given table the plugin's settings
--- @param next_edit table what is shown: `accept`, `dismiss`, `jump`, `drop`
function M.setup(given, next_edit)
  settings, shown = given, next_edit
  local told = 'The next edit: accept, dismiss, jump, toggle, eagerness LEVEL'
  vim.api.nvim_create_user_command('ForetypeNextEdit', command, { nargs = '+', complete = completions, desc = told })
end

return M
