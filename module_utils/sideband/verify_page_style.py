"""How the page of a verify run looks and answers the pointer."""

from __future__ import annotations

STYLE = """
:root{--bg:#f6f7f9;--card:#fff;--ink:#1b2330;--dim:#66707f;--line:#dde2e9;--open:#1f8a55;--shut:#a9d8bd;
--bad:#d3312f;--watch:#e2a019;--none:#c3c9d2}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e6eaf0;--dim:#93a0b1;
--line:#2c3541;
--open:#35b574;--shut:#1f4d38;--bad:#f0524f;--watch:#d99a1c;--none:#48525f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1440px;padding:28px;background:var(--bg);color:var(--ink);
font:14px/1.45 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{margin:0;font-size:30px;letter-spacing:-.02em}h2{margin:0 0 12px;font-size:16px}
header,section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 24px;
margin-bottom:18px;min-width:0}
header{display:flex;gap:32px;justify-content:space-between;align-items:center;flex-wrap:wrap;
border-left:8px solid var(--open)}header.bad{border-left-color:var(--bad)}header.bad h1{color:var(--bad)}
header>div:first-child{flex:1 1 380px}
.kicker{margin:0;color:var(--dim);text-transform:uppercase;letter-spacing:.08em;font-size:12px}
.lead{margin:6px 0 0;color:var(--dim);max-width:60ch}
.tiles{display:flex;gap:12px;flex-wrap:wrap}
.tile{border:1px solid var(--line);border-radius:10px;padding:10px 16px;min-width:104px}
.tile b{display:block;font-size:20px;font-variant-numeric:tabular-nums}
.tile span{color:var(--dim);font-size:12px}
.tile.bad{border-color:var(--bad)}.tile.bad b{color:var(--bad)}
.causes{border-left:8px solid var(--bad)}.causes ol{margin:0;padding-left:24px}
.causes li{margin-bottom:10px}
.causes b{font-weight:600}.causes span,.causes em{display:block;color:var(--dim);font-style:normal}
.legend{display:flex;flex-wrap:wrap;gap:6px 20px;list-style:none;margin:0 0 14px;padding:0;color:var(--dim)}
.legend li{display:flex;align-items:center;gap:7px}.legend .half{width:13px;height:13px;border-radius:3px}
.scroll{overflow-x:auto}
.matrix{border-collapse:separate;border-spacing:0;margin:0 auto}
.matrix th{font-weight:500;text-align:center;padding:2px 4px}
.matrix .host{font-weight:600;padding-bottom:4px;
border-left:2px solid var(--line)}
.matrix .plane{height:92px;vertical-align:bottom;color:var(--dim);font-size:12px}
.matrix .plane span{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap}
.matrix .source{text-align:right;padding-right:12px;font-weight:600;position:sticky;left:0;
background:var(--card);
z-index:1}
.matrix td{padding:2px 4px;min-width:46px;text-align:center;height:32px;white-space:nowrap;line-height:0}
.matrix .edge{border-left:2px solid var(--line)}
.self{background:repeating-linear-gradient(135deg,transparent 0 5px,var(--line) 5px 6px)}
.half{display:inline-block;width:19px;height:26px;background:var(--none);vertical-align:middle;
cursor:pointer}
td .half:first-child{border-radius:5px 0 0 5px;border-right:1px solid var(--card)}
td .half:last-child{border-radius:0 5px 5px 0}
.half.pass{background:var(--shut)}.half.pass.open{background:var(--open)}
.half.observed{background:var(--watch)}
.half.fail{background:var(--bad)}.half.none{background:transparent;cursor:default}
.half[data-p]:hover,.half[data-p]:focus,.half.kept{outline:2px solid var(--ink);outline-offset:1px;
position:relative}
tr:hover .source{color:var(--open)}
#told{position:fixed;z-index:5;max-width:560px;background:var(--card);border:1px solid var(--line);
border-radius:10px;
padding:12px 16px;box-shadow:0 8px 30px #0004;font-size:13px;pointer-events:none}
#told b{display:block;margin-bottom:6px}#told div{padding-left:18px;text-indent:-18px}
#told small{display:block;padding-left:18px;text-indent:0;color:var(--bad);font-size:12px}
.list{border-collapse:collapse;width:100%}.list th,.list td{padding:4px 12px 4px 0;text-align:left;
border-top:1px solid var(--line);font-variant-numeric:tabular-nums;vertical-align:top;
overflow-wrap:anywhere}
.list thead th{border:0;color:var(--dim);font-weight:500;font-size:12px}.list tbody th{font-weight:500}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:18px;align-items:start}
.yes{color:var(--open);font-weight:700}.no{color:var(--bad);font-weight:700}.dim{color:var(--dim)}
footer{color:var(--dim);font-size:12px;padding:4px 8px}
"""

SCRIPT = """
const box=document.getElementById('told');let kept=null;
const signs={pass:'✓ ',fail:'✗ ',observed:'○ ',untested:'· '};
function tell(cell){
  box.replaceChildren();const head=document.createElement('b');head.textContent=cell.dataset.p;
box.append(head);
  for(const [state,words,why] of TOLD[cell.dataset.p]||[]){
    const line=document.createElement('div');line.textContent=signs[state]+words;
    line.className=state==='fail'||state==='untested'?'no':'';
    if(why){const small=document.createElement('small');small.textContent=why;line.append(small)}
    box.append(line)}
  box.hidden=false;const at=cell.getBoundingClientRect();
  box.style.left=Math.max(8,Math.min(at.left,innerWidth-box.offsetWidth-12))+'px';
  const below=at.bottom+8;
  box.style.top=(below+box.offsetHeight>innerHeight?Math.max(8,at.top-box.offsetHeight-8):below)+'px'}
function hide(){if(kept)tell(kept);else box.hidden=true}
for(const cell of document.querySelectorAll('.half[data-p]')){
  const words=cell.title;cell.setAttribute('aria-label',words);cell.removeAttribute('title');
  cell.addEventListener('mouseenter',()=>tell(cell));cell.addEventListener('mouseleave',hide);
  cell.addEventListener('focus',()=>tell(cell));cell.addEventListener('blur',hide);
  cell.addEventListener('click',()=>{if(kept)kept.classList.remove('kept');kept=kept===cell?null:cell;
    if(kept)kept.classList.add('kept')})}
addEventListener('keydown',e=>{if(e.key==='Escape'){if(kept)kept.classList.remove('kept');kept=null;
box.hidden=true}});
addEventListener('scroll',()=>{if(kept)tell(kept);else box.hidden=true},true);
"""
